"""The part of inotify that following logs needs, through libc."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from dataclasses import dataclass

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_TO, CREATE, ONLYDIR = 0x80, 0x100, 0x1000000
OVERFLOW, IGNORED = 0x4000, 0x8000

_EVENT = struct.Struct("iIII")  # watch descriptor, mask, cookie, length of the name that follows
_libc = ctypes.CDLL(None, use_errno=True)
_libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One event."""

    descriptor: int
    mask: int
    name: str  # of the entry, for events of a directory


class Inotify:
    """One inotify instance, and an eventfd with which another thread ends ``wait``.

    OSError if the kernel has no inotify instance or descriptor left.
    """

    def __init__(self) -> None:
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self._descriptor = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError:
            os.close(self._bell)
            raise
        self._poller = select.poll()
        self._poller.register(self._descriptor, select.POLLIN)
        self._poller.register(self._bell, select.POLLIN)

    def add(self, path: str, events: int) -> int:
        """Watch ``path``; the same inode always has the same descriptor."""
        return _checked(_libc.inotify_add_watch(self._descriptor, os.fsencode(path), events))

    def remove(self, descriptor: int) -> None:
        """Stop watching; a descriptor that the kernel already removed is ignored."""
        _libc.inotify_rm_watch(self._descriptor, descriptor)

    def interrupt_wait(self) -> None:
        """End the current or the next ``wait``."""
        os.eventfd_write(self._bell, 1)

    def wait(self, seconds: float | None) -> None:
        """Wait for a notice, ``interrupt_wait`` or ``seconds``; None waits forever."""
        for descriptor, _ in self._poller.poll(None if seconds is None else seconds * 1000):
            if descriptor == self._bell:
                os.eventfd_read(self._bell)

    def notices(self) -> list[Notice]:
        """The notices that have arrived."""
        try:
            raw = os.read(self._descriptor, 64 << 10)
        except BlockingIOError:
            return []
        found, position = [], 0
        while position < len(raw):
            descriptor, mask, _, length = _EVENT.unpack_from(raw, position)
            position += _EVENT.size + length
            name = os.fsdecode(raw[position - length : position].rstrip(b"\0"))
            found.append(Notice(descriptor=descriptor, mask=mask, name=name))
        return found

    def close(self) -> None:
        """Close the descriptors; the kernel removes the watches when no process has the inotify descriptor open."""
        os.close(self._descriptor)
        os.close(self._bell)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
