"""Gives package indexes the README with absolute links; hatchling calls it when it builds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(\[[^\]]+\]\()(?![a-z]+:|#)([^)\s]+\))")


def package_page(readme: str, homepage: str) -> str:
    """The text with each relative link as one into the repository."""
    return _RELATIVE.sub(rf"\g<1>{homepage}/blob/main/\g<2>", readme)


class PackagePage(MetadataHookInterface):
    """Sets the field ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling with the table ``project``."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        page = package_page(text, metadata["urls"]["Homepage"])
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
