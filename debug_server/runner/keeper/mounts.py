"""A mount namespace for each command: what a command mounts is mounted for nobody else and is gone with its processes.

Mounts are copied as slaves, so that whatever is mounted or unmounted outside later reaches the copy. That works only
for mounts that are shared outside. A workspace of another session whose mount is not shared would stay in the copy
after the server has unmounted it, and keep its files on the disk: such mounts are dropped from the copy.
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
    detach,
    make_slaves,
    mount_proc,
    remount_read_only,
    set_namespace,
    set_read_only,
    unshare,
)

WORKSPACE = b"debug-server"  # the source that the overlays of workspaces are mounted with
_CGROUP_ROOT = b"/sys/fs/cgroup"
_READ = 1 << 16
_OCTAL = re.compile(rb"\\([0-7]{3})")


class Mounts:
    """Takes the calling process into a new mount namespace, and back to where it came from."""

    def __init__(self, *, proc: bool, cgroups: bool) -> None:
        self._proc = proc  # mount a /proc for the pid namespace that the caller is in
        self._cgroups = cgroups  # make control groups read-only
        self._home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self._list, self._reader = -1, 0  # mountinfo, and the process that opened it
        self._control_groups: list[bytes] = []
        self._workspaces: list[bytes] = []  # those that nobody else's unmount reaches

    def prepare(self) -> None:
        """Do what can be done ahead of ``enter``: read the list of mounts.

        Each process opens it: the kernel notes on the open file whether its reader knows of the last change.
        """
        if self._reader != os.getpid():
            self._list = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            self._reader = os.getpid()
            self._read()

    def enter(self, cwd: str, *, containers: bool = False) -> None:
        """Copy the mounts; of workspaces that are not shared only the one that holds ``cwd`` stays.

        Control groups stay writable for a program that makes ``containers``.
        """
        self.prepare()
        unshare(CLONE_NEWNS)
        make_slaves()
        self._refresh()  # not before the copy: what was mounted until then is in it
        here = os.fsencode(cwd)
        for point in self._workspaces:
            if here != point and not here.startswith(point + b"/"):
                detach(point)
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
        """Go back; the working directory is then the root directory."""
        set_namespace(self._home, CLONE_NEWNS)

    def _refresh(self) -> None:
        poll = select.poll()
        poll.register(self._list, select.POLLERR | select.POLLPRI)
        if poll.poll(0):
            self._read()

    def _read(self) -> None:
        """To format and read the list costs 0.1 ms: only when it has changed."""
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
    """Those that lie below no other one."""
    found: list[bytes] = []
    for point in sorted(points):
        if not any(point == top or point.startswith(top + b"/") for top in found):
            found.append(point)
    return found


def _unescape(point: bytes) -> bytes:
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), point)


@functools.cache
def find_mounts() -> Mounts | None:
    """For a process with the right to mount: found by doing it once, there and back; None where that fails."""
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
    # To go back is to go to the namespace's root, which is not ours where somebody has called chroot.
    return (before.st_dev, before.st_ino, stat.S_IFMT(before.st_mode)) == (after.st_dev, after.st_ino, stat.S_IFDIR)
