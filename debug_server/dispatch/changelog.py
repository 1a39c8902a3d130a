"""Reads the newest entries of ``CHANGELOG.md``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import debug_server

_HEADING = re.compile(r"^##\s+\[?v?([^\]\s(]+)\]?(?:\s*[-–(]\s*([0-9-]{8,10})\)?)?.*$", re.MULTILINE)  # noqa: RUF001
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Changelog:
    """The newest entries of a changelog."""

    version: str
    date: str
    summary: str
    text: str


def read_changelog(root: Path, entries: int) -> Changelog:
    """The first ``entries`` sections of CHANGELOG.md; 0 or less means one."""
    try:
        text = (root / "CHANGELOG.md").read_bytes()[:_MAX_BYTES].decode("utf-8", "replace")
    except OSError:
        text = ""
    headings = list(_HEADING.finditer(text))
    if not headings:
        return Changelog(version=debug_server.__version__, date="", summary="", text="")
    chosen = headings[: max(1, entries)]
    following = headings[len(chosen)].start() if len(headings) > len(chosen) else len(text)
    first_end = headings[1].start() if len(headings) > 1 else len(text)
    body = text[headings[0].end() : first_end].strip().splitlines()
    summary = next((line.lstrip("-* ").strip() for line in body if line.strip() and not line.startswith("#")), "")
    version = headings[0][1]
    return Changelog(
        version=debug_server.__version__ if version.lower() == "unreleased" else version,
        date=headings[0][2] or "",
        summary=summary,
        text=text[chosen[0].start() : following].strip(),
    )
