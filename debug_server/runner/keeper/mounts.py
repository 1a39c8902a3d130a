"""A mount namespace for each command: its mounts are invisible outside and end with its processes.

Mounts are copied as slaves, so that later changes outside reach the copy. That works only for mounts that are shared
outside. A workspace of another session whose mount is not shared would stay in the copy after the server has unmounted
it, and keep its files on disk: such mounts are removed from the copy.

To remove one waits until every processor has passed through the kernel: a millisecond on a busy machine, for each
workspace and each command. A keeper therefore removes them once, from a template, and copies that for each command.
The end of a copy waits in the same way. Where a workspace need not be attached to it, a copy therefore serves the next
commands too, until a mount in it changes.
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
    attach_mounts,
    cap_sys_admin,
    clone,
    clone_mounts,
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
_READ_SIZE = 1 << 16
_LOOK_EVERY = 1000  # milliseconds: on a machine with containers the mounts change all the time, and their list is long
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
        self._others: list[bytes] = []  # the lines of all mounts that are no workspaces
        self._template = -1  # a descriptor of a namespace without workspaces
        self._template_of: list[bytes] = []  # the other mounts that it was made of
        self._copied = -1  # a descriptor of a copy of the template that serves one command after another
        self._copied_list, self._copied_text = -1, b""  # its mountinfo, and what it was at first
        self._copy_used = False  # a command has run in it since the last look
        self._attaches = can_attach()

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
        self._copy(os.fsencode(cwd), protect=self._cgroups and not containers)
        if self._proc:
            mount_proc()

    def enter_often(self, cwd: str, *, containers: bool = False) -> None:
        """The same, faster for a process that does it again and again and calls ``wait`` meanwhile."""
        if containers or not self._attaches:
            self.enter(cwd, containers=containers)
            return
        self.prepare()
        self._refresh()
        if self._template < 0 or self._template_of != self._others:
            self._make_template()
        own = next((point for point in topmost(self._workspaces) if is_below(os.fsencode(cwd), point)), None)
        if own is None:
            self._enter_copy()
            return
        workspace = clone_mounts(own)
        try:
            enter_namespace(self._template, CLONE_NEWNS)
            unshare(CLONE_NEWNS)
            attach_mounts(workspace, own)
        finally:
            os.close(workspace)

    def wait(self, fd: int) -> None:
        """Wait until ``fd`` can be read. Drop the template when a mount that it may have is removed meanwhile."""
        if self._template < 0:
            return
        if self._copy_used:
            self._copy_used = False
            if _text(self._copied_list) != self._copied_text:  # not everything that a command alters is announced
                self._drop_copy()
        orders, anything = select.poll(), select.poll()
        for poll in (orders, anything):
            poll.register(fd, select.POLLIN)
        anything.register(self._list, select.POLLERR | select.POLLPRI)
        while self._template >= 0:
            ready = [number for number, _ in anything.poll()]
            if self._list in ready:
                self._read()
                if self._others != self._template_of:
                    self._drop_template()
            if fd in ready or orders.poll(_LOOK_EVERY):
                return

    def _enter_copy(self) -> None:
        if self._copied < 0 or _changed(self._copied_list):  # meanwhile, by a mount that is shared
            self._drop_copy()
            self._make_copy()
        else:
            enter_namespace(self._copied, CLONE_NEWNS)
        self._copy_used = True

    def _make_copy(self) -> None:
        enter_namespace(self._template, CLONE_NEWNS)
        unshare(CLONE_NEWNS)
        self._copied_list = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._copied_text = _text(self._copied_list)
        self._copied = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def _drop_copy(self) -> None:
        for descriptor in (self._copied, self._copied_list):
            if descriptor >= 0:
                os.close(descriptor)
        self._copied = self._copied_list = -1

    def _make_template(self) -> None:
        self._drop_template()
        before = self._others
        try:
            self._copy(b"", protect=self._cgroups)
            self._template = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            self._template_of = before  # a mount that was added since may not be in it
        finally:
            self.leave()

    def _drop_template(self) -> None:
        self._drop_copy()
        if self._template >= 0:
            os.close(self._template)
            self._template = -1

    def _copy(self, here: bytes, *, protect: bool) -> None:
        unshare(CLONE_NEWNS)
        make_slaves()
        self._refresh()  # after the copy, which has every mount until then
        for point in self._workspaces:
            if not is_below(here, point):
                unmount_lazily(point)
        if protect:
            self._protect_groups()

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
        if _changed(self._list):
            self._read()

    def _read(self) -> None:
        """Reading the list costs 0.1 ms, so only when it has changed."""
        self._control_groups, self._workspaces, self._others = survey(_text(self._list))


def _text(mountinfo: int) -> bytes:
    os.lseek(mountinfo, 0, os.SEEK_SET)
    return b"".join(iter(lambda: os.read(mountinfo, _READ_SIZE), b""))


def _changed(mountinfo: int) -> bool:
    """Whether a mount was added, removed or altered since the last look at this open file."""
    poll = select.poll()
    poll.register(mountinfo, select.POLLERR | select.POLLPRI)
    return bool(poll.poll(0))


def survey(mountinfo: bytes) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The mounts of control groups, the workspaces whose mounts are not shared, the lines that are no workspaces."""
    groups, workspaces, others, points = [], [], [], set()
    for line in mountinfo.splitlines():
        fields, _, system = line.partition(b" - ")
        _, _, _, _, point, _, *options = fields.split(b" ")
        kind, source = system.split(b" ")[:2]
        points.add(point)
        if kind in (b"cgroup", b"cgroup2"):
            groups.append(_unescape(point))
        if kind != b"overlay" or source != WORKSPACE:
            others.append(line)
        elif not any(option.startswith(b"shared:") for option in options):
            workspaces.append(_unescape(point))
    if _CGROUP_ROOT in points and any(point.startswith(_CGROUP_ROOT + b"/") for point in groups):
        groups.append(_CGROUP_ROOT)
    return groups, workspaces, others


def is_below(place: bytes, point: bytes) -> bool:
    """Whether a path is ``point`` or below it."""
    return place == point or place.startswith(point + b"/")


def topmost(points: list[bytes]) -> list[bytes]:
    """The points that are not below another one."""
    found: list[bytes] = []
    for point in sorted(points):
        if not any(is_below(point, top) for top in found):
            found.append(point)
    return found


def _unescape(point: bytes) -> bytes:
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), point)


@functools.cache
def can_attach() -> bool:
    """Whether a copy of a mount can be attached elsewhere: since Linux 5.2, by a privileged process."""
    try:
        os.close(clone_mounts(b"/"))
    except OSError:
        return False
    return True


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
