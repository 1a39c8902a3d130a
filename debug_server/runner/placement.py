"""Where a file system puts the directories below one of ours."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path

# <linux/fs.h>: the calls behind lsattr and chattr; the kernel reads and writes an int in them.
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_FLAGS = struct.Struct("i4x")
_TOP_OF_HIERARCHIES = 0x00020000


def spread(directory: Path) -> None:
    """Have each directory below this one placed on its own, where the file system knows such a wish (ext4: ``+T``).

    ext4 puts a new file into the same group of inodes as its directory, and passes over every inode there that was
    freed within the last minutes. Beside a folder whose files come and go, a new log costs a millisecond.
    """
    with contextlib.suppress(OSError):  # another file system, or not our directory
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            buffer = bytearray(_FLAGS.size)
            fcntl.ioctl(descriptor, _GET_FLAGS, buffer)
            (flags,) = _FLAGS.unpack(buffer)
            if not flags & _TOP_OF_HIERARCHIES:
                fcntl.ioctl(descriptor, _SET_FLAGS, _FLAGS.pack(flags | _TOP_OF_HIERARCHIES))
        finally:
            os.close(descriptor)
