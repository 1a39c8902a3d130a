"""Finds the files and local projects that a requirements file refers to; parses nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r|-c|--requirements?|--constraints?)(?:\s*=\s*|\s*)(?P<target>\S.*)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(?P<target>\S.*)")
_INDEX = re.compile(r"(?:-i|--index-url)[\s=].*")
_OPTION_TAIL = re.compile(r"\s(--\S|;).*$")
_EXTRAS = re.compile(r"\[[^][]*\]$")  # no "[" inside, so that many brackets do not make the match quadratic
_NAMED_URL = re.compile(r"^[A-Za-z0-9._-]+(?:\s*\[[^\]]*\])?\s*@\s*")


class ReferenceKind(StrEnum):
    """What a line of a requirements file points at."""

    INCLUDE = "include"  # another requirements or constraints file, relative to this one
    LOCAL = "local"  # a folder or an archive on this machine, relative to the project root


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One line that points at something on disk."""

    kind: ReferenceKind
    target: str


@lru_cache(maxsize=64)  # cached by content: parsing a hashed lock takes longer than the rest of a cache hit
def references(text: str) -> tuple[Reference, ...]:
    """Every reference of ``text`` to another file or folder."""
    return tuple(found for line in logical_lines(text) if (found := reference(line)) is not None)


@lru_cache(maxsize=64)
def logical_lines(text: str) -> tuple[str, ...]:
    """Lines with continuations joined and comments removed; empty ones are left out."""
    joined = re.sub(r"\\\r?\n", " ", text).splitlines()
    return tuple(stripped for line in joined if (stripped := _COMMENT.sub("", line).strip()))


def reference(line: str) -> Reference | None:
    """What ``line`` points at, if it is not a plain requirement or option."""
    if match := _INCLUDE.fullmatch(line):
        return Reference(kind=ReferenceKind.INCLUDE, target=_unquote(match["target"]))
    if match := _EDITABLE.fullmatch(line):
        return _local(match["target"], certain=True)
    return None if line.startswith("-") else _local(line, certain=False)


def _local(text: str, *, certain: bool) -> Reference | None:
    target = _NAMED_URL.sub("", _unquote(_OPTION_TAIL.sub("", text).strip()))
    target = _EXTRAS.sub("", target).strip()
    if target.startswith("file:"):
        path = target.removeprefix("file:")
        return Reference(kind=ReferenceKind.LOCAL, target=path.removeprefix("//").split("#")[0] or ".")
    if "://" in target:
        return None
    looks_like_path = target.startswith((".", "/")) or "/" in target or target.endswith((".whl", ".tar.gz", ".zip"))
    return Reference(kind=ReferenceKind.LOCAL, target=target) if certain or looks_like_path else None


def _unquote(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def has_hashes(text: str) -> bool:
    """Whether a requirement of ``text`` is pinned by ``--hash``."""
    return "--hash" in text and any("--hash" in line for line in logical_lines(text))


def has_index(text: str) -> bool:
    """Whether ``text`` replaces the default index."""
    return any(_INDEX.fullmatch(line) for line in logical_lines(text))


def without_local_projects(text: str, root: Path) -> str:
    """``text`` without the lines that would install a local folder."""
    return "".join(f"{line}\n" for line in logical_lines(text) if not _is_local_project(line, root))


def _is_local_project(line: str, root: Path) -> bool:
    found = reference(line)
    return found is not None and found.kind is ReferenceKind.LOCAL and (root / found.target).is_dir()
