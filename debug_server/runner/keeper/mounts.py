"""A mount namespace for each command: its mounts are invisible outside and end with its processes.

Mounts are copied as slaves, so that later changes outside reach the copy. That works only for mounts that are shared
outside. A workspace of another session whose mount is not shared would stay in the copy after the server has unmounted
it, and keep its files on disk: such mounts are removed from the copy.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import select
import stat

from debug_server.runner.keeper.linux import (
    CLONE_NEWNS,
    cap_sys_admin,
    clone,
    enter_namespace,
    make_slaves,
    mount_proc,
    remount_read_only,
    set_read_only,
    unmount_lazily,
    unshare,
)

WORKSPACE = b"debug-server"  # the mount source of workspace overlays
_CGROUP_ROOT = b"/sys/fs/cgroup"
_READ = 1 << 16
_OCTAL = re.compile(rb"\\([0-7]{3})")


class Mounts:
    """Moves the calling process into a new mount namespace, and back."""

    def __init__(self, *, proc: bool, cgroups: bool) -> None:
        self._proc = proc  # mount a /proc for the pid namespace that the caller is in
        self._cgroups = cgroups  # make control groups read-only
        self._home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self._list, self._reader = -1, 0  # mountinfo, and the process that opened it
        self._control_groups: list[bytes] = []
        self._workspaces: list[bytes] = []  # those whose unmounting outside does not reach the copy

    def prepare(self) -> None:
        """Read the list of mounts ahead of ``enter``.

        Each process opens it: the kernel stores with the open file whether its reader knows the last change.
        """
        if self._reader != os.getpid():
            self._list = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            self._reader = os.getpid()
            self._read()

    def enter(self, cwd: str, *, containers: bool = False) -> None:
        """Copy the mounts; of workspaces that are not shared only the one with ``cwd`` stays.

        Control groups stay writable for a program that creates ``containers``.
        """
        self.prepare()
        unshare(CLONE_NEWNS)
        make_slaves()
        self._refresh()  # after the copy, which has every mount until then
        here = os.fsencode(cwd)
        for point in self._workspaces:
            if here != point and not here.startswith(point + b"/"):
                unmount_lazily(point)
        if self._cgroups and not containers:
            self._protect_groups()
        if self._proc:
            mount_proc()

    def _protect_groups(self) -> None:
        try:
            for point in topmost(self._control_groups):
                set_read_only(point)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            for point in self._control_groups:
                remount_read_only(point)

    def leave(self) -> None:
        """Go back to the original namespace; the working directory is then the root directory."""
        enter_namespace(self._home, CLONE_NEWNS)

    def _refresh(self) -> None:
        poll = select.poll()
        poll.register(self._list, select.POLLERR | select.POLLPRI)
        if poll.poll(0):
            self._read()

    def _read(self) -> None:
        """Reading the list costs 0.1 ms, so only when it has changed."""
        os.lseek(self._list, 0, os.SEEK_SET)
        text = b""
        while piece := os.read(self._list, _READ):
            text += piece
        self._control_groups, self._workspaces = survey(text)


def survey(mountinfo: bytes) -> tuple[list[bytes], list[bytes]]:
    """The mounts of control groups, and the workspaces whose mounts are not shared."""
    groups, workspaces, points = [], [], set()
    for line in mountinfo.splitlines():
        fields, _, system = line.partition(b" - ")
        _, _, _, _, point, _, *options = fields.split(b" ")
        kind, source = system.split(b" ")[:2]
        points.add(point)
        if kind in (b"cgroup", b"cgroup2"):
            groups.append(_unescape(point))
        elif kind == b"overlay" and source == WORKSPACE and not any(o.startswith(b"shared:") for o in options):
            workspaces.append(_unescape(point))
    if _CGROUP_ROOT in points and any(point.startswith(_CGROUP_ROOT + b"/") for point in groups):
        groups.append(_CGROUP_ROOT)
    return groups, workspaces


def topmost(points: list[bytes]) -> list[bytes]:
    """The points that are not below another one."""
    found: list[bytes] = []
    for point in sorted(points):
        if not any(point == top or point.startswith(top + b"/") for top in found):
            found.append(point)
    return found


def _unescape(point: bytes) -> bytes:
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), point)


@functools.cache
def find_mounts() -> Mounts | None:
    """The mounts helper if this process may mount, tested once in a child; None if that fails."""
    if not cap_sys_admin():
        return None
    mounts = Mounts(proc=False, cgroups=True)
    pid = clone()
    if pid == 0:
        os._exit(0 if _works(mounts) else 1)
    return mounts if os.waitpid(pid, 0)[1] == 0 else None


def _works(mounts: Mounts) -> bool:
    try:
        before = os.stat("/")
        mounts.enter("/")
        mounts.leave()
        after = os.stat("/")
    except OSError:
        return False
    # Going back leads to the namespace's root, which is another one after chroot.
    return (before.st_dev, before.st_ino, stat.S_IFMT(before.st_mode)) == (after.st_dev, after.st_ino, stat.S_IFDIR)
