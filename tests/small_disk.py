"""A disk that is soon full, of bytes or of files (inodes); only root can mount one."""

from __future__ import annotations

import itertools
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


@contextmanager
def disk_of_few_files(place: Path, *, files: int) -> Iterator[Path]:
    """An ext4 of 128 MiB with that many inodes for the block; the test is skipped where none can be mounted."""
    place.mkdir()
    image = place.with_name(f"{place.name}.image")
    with image.open("wb") as target:
        target.truncate(128 << 20)
    commands = (
        ["mkfs.ext4", "-q", "-F", "-N", str(files), str(image)],
        ["mount", "-o", "loop", str(image), str(place)],  # the kernel frees the loop device with the mount
    )
    if os.geteuid() != 0 or not all(map(_succeeds, commands)):
        pytest.skip("an ext4 of few inodes needs root, mkfs.ext4 and loop devices")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def use_up_files(folder: Path) -> None:
    """Create files in a folder until there is no inode for another one."""
    for number in itertools.count():
        try:
            (folder / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        except OSError:
            return


def free_files(disk: Path) -> int:
    """How many files can still be created."""
    return os.statvfs(disk).f_favail


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
