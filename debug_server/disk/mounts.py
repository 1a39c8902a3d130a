"""Lists the mounts below a folder, and unmounts them without following links."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import kernel

_OCTAL = re.compile(r"\\([0-7]{3})")
_ROUNDS = 100  # limit in case another process mounts as fast as we unmount
# Under another mount, renamed or gone: check again. Other errors do not change.
_RETRY_ERRORS = (errno.ESTALE, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo."""

    number: int
    target: Path
    kind: str
    options: str  # of the file system; for an overlay its lowerdir and upperdir


def list_mounts(below: Path) -> list[Mount]:
    """The mounts at or below ``below``, outermost first."""
    return _list(below.resolve())


def _list(root: Path) -> list[Mount]:
    found = []
    top = os.fspath(root)
    below = f"{top.rstrip('/')}/"
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        number, _, _, _, place, rest = line.split(" ", 5)
        target = _unescape(place) if "\\" in place else place
        if target == top or target.startswith(below):
            kind, _, options = rest.partition(" - ")[2].split(" ", 2)
            found.append(Mount(number=int(number), target=Path(target), kind=kind, options=_unescape(options)))
    return found


def detach_below(path: Path) -> list[Path]:
    """Unmount everything at and below ``path``; returns the mount points that could not be unmounted."""
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        return detach_in(folder, path.name)
    finally:
        os.close(folder)


def detach_in(folder: int, name: str) -> list[Path]:
    """The same for a name in an open folder."""
    root = Path(os.readlink(kernel.path_of(folder)))  # noqa: PTH115  the text as the kernel gives it
    failed: set[int] = set()
    for _ in range(_ROUNDS):
        listed = _list(root / name)
        found = [mount for mount in listed if mount.number not in failed]
        if not found:
            return [mount.target for mount in listed]
        done = 0
        # The outermost first: the mounts in it are made private and unmounted with it. Of several mounts at one point
        # the last one is on top.
        for mount in sorted(found, key=lambda item: (len(item.target.parts), -item.number)):
            try:
                _detach(folder, os.fspath(mount.target.relative_to(root)), mount.number)
                done += 1
            except OSError as error:
                if error.errno not in _RETRY_ERRORS:
                    failed.add(mount.number)
        if not done:
            break
    return [mount.target for mount in _list(root / name)]


def _detach(folder: int, place: str, number: int) -> None:
    """Opened from an open folder and compared by mount id: a link in its path cannot lead to another mount."""
    entry = kernel.open_below(folder, place)
    try:
        if kernel.mount_id(entry) != number:
            raise OSError(errno.ESTALE, "another mount is on top of it", place)
        kernel.detach_mount(kernel.path_of(entry))
    finally:
        os.close(entry)


def detach(target: Path) -> bool:
    """Unmount everything at ``target``, a trusted path, lazily; False if nothing was mounted there."""
    found = False
    while True:
        try:
            kernel.detach_mount(os.fspath(target))
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOENT, errno.EPERM, errno.ENOTDIR):
                raise OSError(error.errno, error.strerror, str(target)) from error
            return found
        found = True


def is_mounted(path: Path) -> bool:
    """Whether something is mounted at ``path``; ``Path.is_mount`` does not see a bind mount of the same file system."""
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        os.close(kernel.open_entry(folder, path.name))
    except OSError as error:
        return error.errno == errno.EXDEV
    finally:
        os.close(folder)
    return False


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
