"""The kernel calls for files that Python's standard library lacks: openat2, renameat2, mount, umount2, attributes."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
from functools import cache

_libc = ctypes.CDLL(None, use_errno=True)

_SYS_OPENAT2 = 437  # the same on every architecture
_RESOLVE_NO_XDEV, _RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x01, 0x02, 0x04, 0x08
_ONE_NAME = _RESOLVE_NO_XDEV | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS
_RENAME_NOREPLACE = 1
_MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x4000, 0x40000, 2
_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS = 0x80086601, 0x40086602
_FS_IMMUTABLE, _FS_APPEND = 0x10, 0x20
_PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_PATH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_same_mount(folder: int, name: str, flags: int = FOLDER) -> int:
    """Open one name (or ``..``) in a folder; OSError(EXDEV) if something is mounted there, ELOOP if it is a link."""
    if _has_openat2():
        return _openat2(folder, name, flags, _ONE_NAME)
    descriptor = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    # O_PATH opens a link itself; bind mounts of one file system share its device number, so the mount is compared.
    if mount_id(descriptor) != mount_id(folder):
        os.close(descriptor)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return descriptor


def open_folder_below(folder: int, path: str, flags: int = FOLDER) -> int:
    """Open a folder below ``folder`` on the same mount; OSError(ELOOP or ENOTDIR) if a part of ``path`` is a link."""
    if _has_openat2():
        return _openat2(folder, path, flags, _RESOLVE_BENEATH | _ONE_NAME)
    current = os.dup(folder)
    names = path.split("/")
    for name in names:
        try:
            following = open_same_mount(current, name, flags if name is names[-1] else FOLDER_PATH)
        finally:
            os.close(current)
        current = following
    return current


def open_below(folder: int, path: str) -> int:
    """A path-only descriptor below ``folder``, also across mounts; never through a link."""
    if _has_openat2():
        return _openat2(folder, path, _PATH_ONLY, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS)
    current = os.dup(folder)
    for name in path.split("/"):
        try:
            following = os.open(name, _PATH_ONLY, dir_fd=current)
        finally:
            os.close(current)
        current = following
    return current


def open_real_folder(path: str) -> int:
    """A path-only descriptor of an absolute path without links."""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_below(root, path.strip("/") or ".")
    finally:
        os.close(root)


def open_entry(folder: int, name: str) -> int:
    """A path-only descriptor of one name, whatever it is."""
    return open_same_mount(folder, name, _PATH_ONLY)


def path_of(descriptor: int) -> str:
    """A path that leads to an open file, even if it was renamed."""
    return f"/proc/self/fd/{descriptor}"


def mount_id(descriptor: int) -> int:
    """The id of the mount on which a file was opened."""
    with open(f"/proc/self/fdinfo/{descriptor}", "rb") as reader:  # noqa: PTH123  one of thousands
        for line in reader:
            if line.startswith(b"mnt_id:"):
                return int(line.partition(b":")[2])
    raise OSError(errno.ENOSYS, "the kernel does not report mount ids", str(descriptor))


def rename_new(folder: int, name: str, target: str) -> None:
    """Rename an entry of an open folder; FileExistsError if there is an entry ``target``, a link without an end too."""
    rename = getattr(_libc, "renameat2", None)  # glibc 2.28; some file systems and container engines lack it
    if rename is not None:
        if not rename(folder, os.fsencode(name), folder, os.fsencode(target), ctypes.c_uint(_RENAME_NOREPLACE)):
            return
        if ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
            raise _last_error(target)
    os.link(name, target, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    os.unlink(name, dir_fd=folder)


def detach_mount(target: str) -> None:
    """Unmount what is mounted at ``target``, also where it is in use; OSError when the kernel refuses.

    It is made private first. In a peer group with its original (``mount --rbind /`` where ``/`` is shared) the kernel
    would unmount everything below the original as well.
    """
    place = os.fsencode(target)
    if _libc.mount(None, place, None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None):
        raise _last_error(target)
    if _libc.umount2(place, ctypes.c_int(_MNT_DETACH)):
        raise _last_error(target)


def clear_attributes(entry: int) -> bool:
    """Clear ``chattr +i`` and ``+a`` of the file of a path-only descriptor; returns whether one was set."""
    kind = os.fstat(entry).st_mode
    if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):  # only these can have them, and a device must not be opened
        return False
    try:
        descriptor = os.open(path_of(entry), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        (flags,) = struct.unpack("i", fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, struct.pack("i", 0)))
        if not flags & (_FS_IMMUTABLE | _FS_APPEND):
            return False
        fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, struct.pack("i", flags & ~(_FS_IMMUTABLE | _FS_APPEND)))
    except OSError:  # not supported by the file system, or not permitted
        return False
    finally:
        os.close(descriptor)
    return True


@cache
def _has_openat2() -> bool:
    """Available since Linux 5.6, but blocked by some container engines."""
    try:
        os.close(_openat2(-100, "/", os.O_PATH | os.O_CLOEXEC, 0))
    except OSError:
        return False
    return True


def _openat2(folder: int, name: str, flags: int, resolve: int) -> int:
    how = _OpenHow(flags=flags, resolve=resolve)
    text = os.fsencode(name)
    while True:
        descriptor: int = _libc.syscall(_SYS_OPENAT2, folder, text, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return descriptor
        # EAGAIN: a rename or mount during a lookup with ``..``; try again.
        if ctypes.get_errno() not in (errno.EINTR, errno.EAGAIN):
            raise _last_error(name)


def _last_error(name: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), name)
