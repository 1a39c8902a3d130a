"""Parses a patch as git does, as far as its files and hunks; refuses paths outside the tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from debug_server.errors import PatchApplicationError

_HUNK = re.compile(rb"@@ -(\d{1,18})(?:,(\d{1,18}))? \+(\d{1,18})(?:,(\d{1,18}))? @@")
# Possessive: an unclosed quote is scanned once, without backtracking.
_WORD = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_MAX_PATH = 4096  # bytes, as in the kernel
_MAX_HEADER = 2 * (4 * _MAX_PATH + 8)  # two names with each byte as an octal escape
_HEAD = 1024
_SPACED_FOLDER = re.compile(rb'^diff --git (?!")(?=.* /)(.*)$', re.MULTILINE)
PLAIN_DIFF = "git diff --no-ext-diff --no-color --src-prefix=a/ --dst-prefix=b/"  # whatever its user has configured
_NAMES = (b"rename from ", b"rename to ", b"copy from ", b"copy to ")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "v": 11, "f": 12, '"': 34, "\\": 92}
# HFS+ ignores these inside a name, NTFS drops dots and spaces at its end: ".g\u200cit" and ".git. " are ".git" there.
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """One @@ section."""

    number: int  # 1, 2, 3 within its file
    old_start: int
    line: int  # of the patch


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """The part of a patch about one file."""

    paths: tuple[str, ...]  # every name it mentions, old and new
    hunks: tuple[Hunk, ...]


def read_patch(data: bytes) -> list[FileChange]:
    """The patch's files; PatchApplicationError if it names no file or one outside the tree."""
    changes = _parse(data)
    if b"\x1b[" in data[:_HEAD] and not data.startswith((b"diff ", b"--- ")):
        raise PatchApplicationError(f"the patch has the colours of a terminal in it: make it with `{PLAIN_DIFF}`")
    if not changes:
        raise PatchApplicationError("the patch names no file: use a unified diff, as `git diff` prints it")
    for change in changes:
        for path in change.paths:
            check_inside(path)
    return changes


def quote_headers(patch: bytes) -> bytes:
    """The patch with quoted names where git apply cannot read the name: that of a folder ends with a space."""
    return _SPACED_FOLDER.sub(_quote_header, patch)


def _quote_header(header: re.Match[bytes]) -> bytes:
    middle = len(header[1]) // 2
    old, new = header[1][:middle], header[1][middle + 1 :]
    return b'diff --git "%s" "%s"' % (old, new) if old[1:] == new[1:] else header[0]


def replaces_folders(patch: bytes) -> bool:
    """Whether a path of the patch is the folder of another: it was one before, or it is one afterwards."""
    paths = {path for change in _parse(patch) for path in change.paths}
    return any(str(parent) in paths for path in paths for parent in PurePosixPath(path).parents)


def check_inside(path: str) -> str:
    """Return ``path`` if it can only be a file inside the tree."""
    if len(path.encode(errors="surrogateescape")) > _MAX_PATH:
        raise PatchApplicationError(f"the patch names {path[:80]!r}…: a path has at most {_MAX_PATH} bytes")
    parts = path.split("/")
    if path.startswith("/"):
        raise PatchApplicationError(f"the patch names {path!r}: paths must be relative to the repository")
    if any(part in ("", ".", "..") for part in parts):
        raise PatchApplicationError(f"the patch names {path!r}: it must not leave the repository")
    if any(_is_git_folder(part) for part in re.split(r"[/\\]", path)):  # on Windows a backslash separates, too
        raise PatchApplicationError(f"the patch names {path!r}: git's own files cannot be patched")
    return path


def _is_git_folder(part: str) -> bool:
    plain = _IGNORED.sub("", part).split(":", 1)[0].rstrip(" .").lower()
    return plain in (".git", "git~1")


def _parse(data: bytes) -> list[FileChange]:
    changes: list[FileChange] = []
    paths: list[str] = []
    hunks: list[Hunk] = []

    def close() -> None:
        if paths:
            changes.append(FileChange(paths=tuple(dict.fromkeys(paths)), hunks=tuple(hunks)))
        paths.clear()
        hunks.clear()

    left_old = left_new = 0
    for number, line in enumerate(data.split(b"\n"), start=1):
        if left_old > 0 or left_new > 0:
            left_old -= line[:1] in (b" ", b"-", b"")
            left_new -= line[:1] in (b" ", b"+", b"")
        elif match := _HUNK.match(line):
            left_old, left_new = int(match[2] or 1), int(match[4] or 1)
            hunks.append(Hunk(number=len(hunks) + 1, old_start=int(match[1]), line=number))
        elif line.startswith(b"diff --git ") or (line.startswith(b"--- ") and hunks):
            close()
            paths.extend(_header_paths(line))
        else:
            paths.extend(_header_paths(line))
    close()
    return changes


def old_name(line: bytes) -> str | None:
    """The file of a ``---`` line; None for /dev/null."""
    name = unquote_name(line[4:].split(b"\t", 1)[0])
    return None if name == "/dev/null" else _strip(name)


def _header_paths(line: bytes) -> list[str]:
    if line.startswith((b"--- ", b"+++ ")):
        name = old_name(line)
        return [] if name is None else [name]
    for word in _NAMES:
        if line.startswith(word):
            return [unquote_name(line[len(word) :])]
    if line.startswith(b"diff --git "):
        return _both_names(line[len(b"diff --git ") :].rstrip(b"\r"))
    return []


def _both_names(rest: bytes) -> list[str]:
    """The name that both halves of a ``diff --git`` line have; git reads other names from the lines that follow."""
    if len(rest) > _MAX_HEADER:
        raise PatchApplicationError(f"the patch names {rest[:80]!r}…: a path has at most {_MAX_PATH} bytes")
    if rest.startswith(b'"'):
        first = _WORD.match(rest)
        pairs = [(first[0], rest[first.end() + 1 :])] if first is not None else []
    else:
        pairs = [(rest[: found.start()], rest[found.end() :]) for found in re.finditer(b" ", rest)]
    names = [(_strip(unquote_name(old)), _strip(unquote_name(new))) for old, new in pairs]
    return [old for old, new in names if old == new and old]


def _strip(name: str) -> str:
    """The name without ``a/`` or ``b/``, as git apply reads it; an absolute name is unchanged."""
    return name if name.startswith("/") else name.partition("/")[2] or name


def unquote_name(name: bytes) -> str:
    """A path as git writes it: plain, or in double quotes with C escapes."""
    name = name.rstrip(b"\r")
    if not (name.startswith(b'"') and name.endswith(b'"') and len(name) >= 2):
        return name.decode(errors="surrogateescape")
    raw = re.sub(rb"\\([0-7]{3}|.)", _unescape, name[1:-1])
    return raw.decode(errors="surrogateescape")


def _unescape(match: re.Match[bytes]) -> bytes:
    text = match[1].decode("latin-1")
    return bytes([int(text, 8) & 255 if len(text) == 3 else _ESCAPES.get(text, ord(text))])
