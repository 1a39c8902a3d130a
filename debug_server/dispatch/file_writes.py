"""Writes small files in a registered repository, whole or by lines, never outside its root."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from debug_server.errors import InvalidInputError, PayloadTooLargeError

MAX_BYTES = 4 << 20
_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def write_file(root: Path, relative: str, content: str, *, merge: bool) -> Path:
    """Write a file, or with ``merge`` append the lines that it does not have; returns its path."""
    if merge:
        return _change(root, relative, lambda text: merged(text, lines_of(content)))
    return _change(root, relative, lambda _: content)


def merge_lines(root: Path, lines: Sequence[str], relative: str = ".gitignore") -> Path:
    """Append the lines that the file does not have; returns its path."""
    return _change(root, relative, lambda text: merged(text, lines))


def set_env_key(root: Path, key: str, value: str, relative: str = ".env") -> Path:
    """Set one variable, in place if it exists; returns the file's path."""
    if not _ENV_KEY.fullmatch(key):
        raise InvalidInputError(
            f"key {key[:60]!r} may contain only letters, digits and '_', and must not begin with a digit"
        )
    if "\n" in value or "\r" in value or "\0" in value:
        raise InvalidInputError(f"the value of {key} must be one line")
    line = f"{key}={value}"

    def changed(text: str) -> str:
        lines = lines_of(text)
        known_at = [index for index, known in enumerate(lines) if known.partition("=")[0].strip() == key]
        if known_at:
            lines[known_at[-1]] = line
        else:
            lines.append(line)
        return "\n".join(lines) + "\n"

    return _change(root, relative, changed, mode=0o600)  # of a new file: it holds secrets


def lines_of(text: str) -> list[str]:
    """The lines of a text; ``splitlines`` would also split at a form feed or U+2028 inside a value."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def merged(text: str, lines: Sequence[str]) -> str:
    """The text with the missing lines appended."""
    have = set(lines_of(text))
    new = [line for line in dict.fromkeys(lines) if line not in have]
    if any("\n" in line or "\0" in line for line in new):
        raise InvalidInputError("a line must not contain line ends or NUL characters")
    gap = "\n" if text and not text.endswith("\n") and new else ""
    return text + gap + "".join(f"{line}\n" for line in new)


def _change(root: Path, relative: str, change: Callable[[str], str], *, mode: int = 0o644) -> Path:
    parts = _parts(relative)
    folder = _open_folder(root, parts[:-1], relative)
    try:
        content = change(_read(folder, parts[-1])).encode()
        if len(content) > MAX_BYTES:
            raise PayloadTooLargeError(f"{relative} would have {len(content)} bytes (limit {MAX_BYTES})")
        _replace(folder, parts[-1], content, mode)
    except OSError as error:
        raise InvalidInputError(f"{relative!r} cannot be written: {error.strerror}") from error
    except UnicodeError as error:
        raise InvalidInputError(f"{relative!r} or its new content is not UTF-8 text") from error
    finally:
        os.close(folder)
    return root.joinpath(*parts)


def _parts(relative: str) -> tuple[str, ...]:
    path = PurePosixPath(relative)
    if not relative or path.is_absolute() or ".." in path.parts or "\0" in relative or not path.parts:
        raise InvalidInputError(f"relative_path {relative[:80]!r} must lie inside the repository")
    if ".git" in (part.lower() for part in path.parts):
        raise InvalidInputError(f"relative_path {relative[:80]!r} is in .git, whose files can name programs to run")
    return path.parts


def _open_folder(root: Path, parts: tuple[str, ...], relative: str) -> int:
    """Open folder by folder without following links, so that none leads outside, also one made meanwhile."""
    here = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            try:
                inside = os.open(part, _DIRECTORY, dir_fd=here)
            except FileNotFoundError:
                os.mkdir(part, dir_fd=here)
                inside = os.open(part, _DIRECTORY, dir_fd=here)
            os.close(here)
            here = inside
    except OSError as error:
        os.close(here)
        raise InvalidInputError(f"relative_path {relative[:80]!r}: {error.strerror}: {error.filename!r}") from error
    return here


def _read(folder: int, name: str) -> str:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_BYTES + 1).decode()


def _replace(folder: int, name: str, content: bytes, mode: int) -> None:
    draft = f".{secrets.token_hex(8)}.draft"
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        mode = found.st_mode & 0o777
    except FileNotFoundError:
        pass
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(draft, dir_fd=folder)
        raise
