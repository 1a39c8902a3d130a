"""Copies files completely: links, special files, holes, owners and attributes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from debug_server.errors import WorktreePoolError

_TIMEOUT = 300.0
_ARGUMENT_BYTES = 64_000  # for one call; the kernel accepts more


def copy_whole(source: Path, target: Path) -> None:
    """Copy ``source`` to ``target``, which does not exist yet."""
    _run([os.fsencode(source), os.fsencode(target)], source)


def copy_below(names: Sequence[bytes], source: Path, target: Path) -> None:
    """Copy ``names``, relative to the folder ``source``, to the same names in the folder ``target``."""
    for some in _portions(names):
        _run(["--parents", "-t", os.fsencode(target.absolute()), "--", *some], source, cwd=source)


def _portions(names: Sequence[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    for name in names:
        if some and size + len(name) > _ARGUMENT_BYTES:
            yield some
            some, size = [], 0
        some.append(name)
        size += len(name) + 1
    if some:
        yield some


def _run(arguments: Sequence[str | bytes], source: Path, *, cwd: Path | None = None) -> None:
    # cp copies every kind of file at any depth, and shares blocks where the file system can.
    line = ["cp", "-a", "--reflink=auto", *arguments]
    try:
        done = subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise WorktreePoolError(f"copying {source} took longer than {_TIMEOUT:g} s") from error
    if done.returncode:
        raise WorktreePoolError(f"the files of {source} cannot be copied: {done.stderr.strip().splitlines()[-1]}")
