"""Copies the files of a workspace that match globs, hashes them and detects their kind."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path, PurePosixPath

from debug_server.errors import InvalidInputError
from debug_server.model import ArtifactKind
from debug_server.worktrees.globs import matches

_CHUNK = 1 << 20
_HEAD = 4096
_MAX_PATTERN = 4096  # as long as a path may be
_JUNIT = (b"<testsuite", b"<testsuites")
_ELF_CORE_TYPE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFile:
    """One file that was copied."""

    name: str  # relative to the workspace
    path: Path  # the copy
    size: int
    sha256: str
    kind: ArtifactKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedFile:
    """One match that was not copied."""

    name: str
    reason: str


def copy_artifacts(
    workspace: Path, patterns: Sequence[str], destination: Path
) -> tuple[list[CopiedFile], list[RefusedFile]]:
    """Copy what the globs match below ``workspace`` to ``destination``; links that leave the workspace are refused."""
    check_patterns(patterns)
    root = Path(os.path.realpath(workspace))
    unread: dict[str, str] = {}
    names: set[str] = set()
    for pattern in patterns:
        names.update(matches(root, pattern, lambda folder, error: unread.setdefault(folder, _unreadable(error))))
    items = [_copy_match(root, name, destination) for name in sorted(names)]
    refused = [RefusedFile(name=_text(name), reason=reason) for name, reason in sorted(unread.items())]
    refused += [item for item in items if isinstance(item, RefusedFile)]
    return [item for item in items if isinstance(item, CopiedFile)], refused


def _copy_match(root: Path, match: str, destination: Path) -> CopiedFile | RefusedFile:
    name = _text(match)
    try:
        # Strict: without it a loop of links is resolved in part, and open() would follow the rest.
        source = Path(os.path.realpath(root / match, strict=True))
    except OSError as error:
        return RefusedFile(name=name, reason=_unreadable(error))
    if not source.is_relative_to(root):
        return RefusedFile(name=name, reason="its target is outside the workspace")
    item = _copy(name, source, destination / name)
    return item if isinstance(item, CopiedFile) else RefusedFile(name=name, reason=item)


def _unreadable(error: OSError) -> str:
    return f"it cannot be read: {error.strerror}"


def _text(name: str) -> str:
    """A file name that can be stored and sent: bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def check_patterns(patterns: Sequence[str]) -> None:
    """InvalidInputError unless every pattern is a valid glob that stays in the workspace."""
    for pattern in patterns:
        if len(pattern) > _MAX_PATTERN:
            raise InvalidInputError(f"artifact pattern {pattern[:80]!r}… has more than {_MAX_PATTERN} characters")
        pure = PurePosixPath(pattern)
        if not pure.parts or pure.is_absolute() or ".." in pure.parts:
            raise InvalidInputError(f"artifact pattern {pattern!r} must be relative and stay in the workspace")
        if "\0" in pattern or any("**" in part and part != "**" for part in pure.parts):
            raise InvalidInputError(
                f"artifact pattern {pattern!r} is not a valid glob: '**' must stand alone between slashes"
            )


def _copy(name: str, source: Path, target: Path) -> CopiedFile | str:
    """Copy through one descriptor that follows no link: the file that was checked is read. Or the reason why not."""
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return _unreadable(error)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return "it is not a regular file"
    with os.fdopen(descriptor, "rb", buffering=0) as reader:
        try:
            return _write_copy(name, reader, target)
        except OSError as error:  # a full disk, most often: remove the partial copy
            with suppress(OSError):
                target.unlink(missing_ok=True)
            return f"it cannot be copied: {error.strerror}"


def _write_copy(name: str, reader: FileIO, target: Path) -> CopiedFile:
    """Size and hash are of the bytes written, so they hold even if another process changes either file."""
    digest, size, head = hashlib.sha256(), 0, b""
    _make_folder(target.parent)
    with target.open("wb") as writer:
        while chunk := reader.read(_CHUNK):
            head = head or chunk[:_HEAD]
            digest.update(chunk)
            size += len(chunk)
            writer.write(chunk)
    return CopiedFile(name=name, path=target, size=size, sha256=digest.hexdigest(), kind=_kind_of(target.name, head))


def _make_folder(path: Path) -> None:
    """Not ``mkdir(parents=True)``: it recurses for each missing folder, and there may be a thousand."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)


def _kind_of(name: str, head: bytes) -> ArtifactKind:
    if head[:4] == b"\x7fELF" and len(head) > 17:
        kind = int.from_bytes(head[16:18], "big" if head[5] == 2 else "little")
        return ArtifactKind.CORE_DUMP if kind == _ELF_CORE_TYPE else ArtifactKind.CUSTOM
    if any(mark in head for mark in _JUNIT):
        return ArtifactKind.JUNIT
    name = name.lower()
    if b"<coverage" in head or name.startswith(".coverage") or name in ("lcov.info", "coverage.json"):
        return ArtifactKind.COVERAGE
    return ArtifactKind.LOG if name.endswith(".log") else ArtifactKind.CUSTOM
