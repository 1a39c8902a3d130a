"""mount(2) and umount2(2) for overlays, and the kernel's own list of what is mounted."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_MS_NOSUID, _MS_NODEV = 2, 4
_MNT_DETACH = 2
_OPTION_BYTES = 4095  # one page less the final NUL: the kernel cuts the rest off
_OCTAL = re.compile(r"\\([0-7]{3})")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo."""

    target: Path
    kind: str
    options: str  # of the file system; for an overlay its lowerdir and upperdir


def overlay_options(lower: Sequence[Path], upper: Path, work: Path) -> str:
    """The mount data of an overlay; OSError(E2BIG) if the kernel would cut it off."""
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
    """Mount ``lower`` (uppermost first) with a fresh ``upper`` at ``target``; OSError names what the kernel said."""
    data = os.fsencode(overlay_options(lower, upper, work))
    status = _libc.mount(
        b"overlay", os.fsencode(target), b"overlay", ctypes.c_ulong(_MS_NOSUID | _MS_NODEV), ctypes.c_char_p(data)
    )
    if status:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(target))


def detach(target: Path) -> bool:
    """Unmount everything at ``target`` lazily; False if nothing was mounted there."""
    found = False
    while _libc.umount2(os.fsencode(target), ctypes.c_int(_MNT_DETACH)) == 0:
        found = True
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOENT, errno.EPERM, errno.ENOTDIR):
        raise OSError(code, os.strerror(code), str(target))
    return found


def list_mounts(below: Path) -> list[Mount]:
    """What is mounted at or under ``below``, outermost first."""
    found = []
    root = below.resolve()
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        fields, _, rest = line.partition(" - ")
        target = Path(_unescape(fields.split(" ")[4]))
        if target.is_relative_to(root):
            kind, _, options = rest.split(" ", 2)
            found.append(Mount(target=target, kind=kind, options=_unescape(options)))
    return found


def _escape(path: Path, *, colon: bool = False) -> str:
    text = str(path).replace("\\", "\\\\").replace(",", "\\,")
    return text.replace(":", "\\:") if colon else text


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
