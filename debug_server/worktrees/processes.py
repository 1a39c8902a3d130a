"""Finds the processes that use a directory, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def processes_under(path: Path) -> list[int]:
    """Pids whose working directory, root, program, open file or mapped file is at or below ``path``."""
    root = os.path.realpath(path)  # the kernel names files by their real path
    mapped = os.fsencode(f" {root}/")
    return [pid for pid in _pids() if any(_below(link, root) for link in _links(pid)) or mapped in _maps(pid)]


def _pids() -> Iterator[int]:
    for name in os.listdir("/proc"):  # noqa: PTH208  the names alone, hundreds of them
        if name.isdigit():
            yield int(name)


def _links(pid: int) -> Iterator[str]:
    for name in ("cwd", "root", "exe"):
        yield _target(f"/proc/{pid}/{name}")
    folder = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(folder)  # noqa: PTH208
    except OSError:  # it ended, or belongs to another user
        return
    for number in numbers:
        yield _target(f"{folder}/{number}")


def _maps(pid: int) -> bytes:
    """Mapped files: a file stays mapped, and writable, after it is closed."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as reader:  # noqa: PTH123
            return reader.read()
    except OSError:
        return b""


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115  the text as the kernel gives it, also "… (deleted)"
    except OSError:
        return ""


def _below(target: str, root: str) -> bool:
    return target == root or target.startswith(root + "/")
