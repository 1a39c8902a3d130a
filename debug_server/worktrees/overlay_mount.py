"""Mounts an overlay with mount(2); unmounting and the list of mounts are in ``disk``."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from pathlib import Path

SOURCE = b"debug-server"  # marks a workspace's mount in /proc/self/mountinfo; keepers look for it
_MS_NOSUID, _MS_NODEV = 2, 4
_OPTION_BYTES = 4095  # one page less the final NUL: the kernel ignores the rest

_libc = ctypes.CDLL(None, use_errno=True)


def overlay_options(lower: Sequence[Path], upper: Path, work: Path) -> str:
    """The mount data of an overlay; OSError(E2BIG) if it is too long for the kernel."""
    # volatile: a plain unmount would sync the whole disk. redirect_dir: renaming a directory of the tree must work.
    options = (
        f"lowerdir={':'.join(_escape(path, colon=True) for path in lower)},"
        f"upperdir={_escape(upper)},workdir={_escape(work)},"
        "volatile,redirect_dir=on,index=off,metacopy=off"
    )
    if len(os.fsencode(options)) > _OPTION_BYTES:
        raise OSError(errno.E2BIG, "overlay options are longer than a page", str(upper))
    return options


def mount_overlay(target: Path, *, lower: Sequence[Path], upper: Path, work: Path) -> None:
    """Mount ``lower`` (uppermost first) with a fresh ``upper`` at ``target``; OSError with the kernel's reason."""
    data = os.fsencode(overlay_options(lower, upper, work))
    status = _libc.mount(
        SOURCE, os.fsencode(target), b"overlay", ctypes.c_ulong(_MS_NOSUID | _MS_NODEV), ctypes.c_char_p(data)
    )
    if status:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(target))


def _escape(path: Path, *, colon: bool = False) -> str:
    text = str(path).replace("\\", "\\\\").replace(",", "\\,")
    return text.replace(":", "\\:") if colon else text
