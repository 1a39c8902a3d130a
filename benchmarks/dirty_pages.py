"""A disk with much that is not written back yet: what slows a careless unmount down by seconds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BLOCK = b"\1" * (1 << 20)
_ROOM = 2  # times as much must be free


def why_not(folder: Path, size: int) -> str | None:
    """The reason why ``size`` bytes cannot be left dirty below ``folder``, or None."""
    free = shutil.disk_usage(folder).free
    if free < _ROOM * size:
        return f"only {free // 1_000_000} MB are free on the disk"
    return None


@contextmanager
def dirtied(path: Path, size: int) -> Iterator[int]:
    """Write ``size`` bytes to ``path`` and leave them dirty; gives how much the machine has dirty in all."""
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(size // len(_BLOCK) + 1):
                file.write(_BLOCK)
            yield _dirty_bytes()
    finally:
        path.unlink(missing_ok=True)


def _dirty_bytes() -> int:
    names = ("Dirty:", "Writeback:")
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = sum(int(line.split()[1]) for line in lines if line.startswith(names))
    return found * 1024 if found else 0
