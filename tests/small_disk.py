"""A disk that is soon full: a tmpfs, which only root can mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, *, mebibytes: int) -> Iterator[Path]:
    """A file system of that size for the block; the test is skipped where none can be mounted."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=755", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def free_bytes(disk: Path) -> int:
    """How much can still be written."""
    space = os.statvfs(disk)
    return space.f_bavail * space.f_frsize


def fill_up(disk: Path) -> Path:
    """Take what a failed write of many bytes has left; the file that holds it."""
    rest = disk / "rest"
    with rest.open("ab", buffering=0) as target:
        try:
            while True:
                target.write(bytes(4096))
        except OSError:
            return rest
