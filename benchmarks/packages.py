"""Real packages in the versions that the project's own lock names, so that setting up has warmed uv's cache."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_LOCK = Path(__file__).parent.parent / "requirements" / "dev.txt"
_ENTRY = re.compile(r"^(?P<name>[a-z0-9-]+)==[^\n]*\n(?:    --hash=[^\n]*\n)*", re.MULTILINE)

# Closed: everything that one of them needs is there too.
PYTEST = ("iniconfig", "packaging", "pluggy", "pygments", "pytest")
TWENTY_FIVE = (
    "annotated-doc",
    "annotated-types",
    "anyio",
    "certifi",
    "click",
    "h11",
    "httpcore",
    "httpx",
    "idna",
    "iniconfig",
    "markdown-it-py",
    "mdurl",
    "opentelemetry-api",
    "pydantic",
    "pydantic-core",
    "pygments",
    "pyyaml",
    "rich",
    "shellingham",
    "starlette",
    "typer",
    "typing-extensions",
    "typing-inspection",
    "uvicorn",
    "websockets",
)


def requirements(names: Iterable[str]) -> str:
    """The text of a requirements file: versions and hashes."""
    entries = {entry["name"]: entry[0] for entry in _ENTRY.finditer(_LOCK.read_text())}
    return "".join(entries[name] for name in names)
