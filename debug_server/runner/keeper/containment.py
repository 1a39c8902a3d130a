"""Chooses the mechanism that contains process trees, and creates the slot of each command.

The fork server tests the mechanisms once, at its start; ``capabilities`` has the result.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import struct
import time
from collections.abc import Callable

from debug_server.runner.keeper import cgroup, prefork
from debug_server.runner.keeper.group_tree import Version1Tree, Version2Tree
from debug_server.runner.keeper.linux import (
    CLONE_NEWPID,
    CLONE_NEWUSER,
    cap_sys_admin,
    clone,
    is_alive,
    set_parent_death_signal,
    set_process_name,
    start_time,
)
from debug_server.runner.keeper.mounts import Mounts, find_mounts
from debug_server.runner.keeper.slot import Slot, Version1Slot, fork_child
from debug_server.runner.keeper.tree import NamespaceTree, SessionTree, Tree
from debug_server.runner.sandbox.probe import probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

GROUP_PREFIX = "debug-server-run-"
STATUS = struct.Struct("<i")


class Containment:
    """Base of the mechanisms."""

    name = ""
    controllers: list[str] = []  # noqa: RUF012 - replaced, never changed

    def __init__(self) -> None:
        self.mounts = find_mounts()

    @property
    def namespaces(self) -> list[str]:
        """The namespaces that each command gets."""
        return [] if self.mounts is None else ["mount"]

    def capabilities(self) -> dict[str, Any]:
        """What this mechanism can enforce."""
        return {
            "mechanism": self.name,
            "controllers": self.controllers,
            "namespaces": self.namespaces,
            "root": os.geteuid() == 0,
            "hard": prefork.hard_limits(),
            "isolation": probe(),
        }

    def prepare(self, stdio: prefork.Stdio) -> Slot:
        """Create a slot for the next command."""
        raise NotImplementedError

    def trees_of_dead_keeper(self, pid: int, started: int) -> list[Tree]:
        """Trees that a dead keeper left; empty for a mechanism whose trees end with the keeper."""
        return []

    def remove_orphaned_trees(self) -> None:
        """After a crash: end the trees of dead keepers of earlier servers."""


def _clone_patiently(orders: socket.socket) -> int:
    """``clone``; while no process can be created, say so and retry: the orders wait in their socket."""
    deadline = time.monotonic() + prefork.SPAWN_PATIENCE
    while True:
        try:
            return clone()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        orders.sendall(prefork.NO_PROCESS)
        time.sleep(prefork.SPAWN_RETRY)


_numbers = itertools.count(1)


def _group_name() -> str:
    """A group name with the keeper's pid and start time, so that others can check whether the keeper is alive."""
    return f"{GROUP_PREFIX}{os.getpid()}-{start_time(os.getpid())}-{next(_numbers)}"


class Version1Containment(Containment):
    """Version 1 groups."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = cgroup.Version1()
        self.name, self.controllers = self.groups.name, self.groups.controllers

    def prepare(self, stdio: prefork.Stdio) -> Slot:
        return Version1Slot(self.groups.make(_group_name()), self.groups.parents, self.mounts)

    def trees_of_dead_keeper(self, pid: int, started: int) -> list[Tree]:
        names = {name for parent in self.groups.parents.values() for name in _groups_of(parent, pid, started)}
        return [self._tree(name) for name in names]

    def remove_orphaned_trees(self) -> None:
        for parent in self.groups.parents.values():
            for name in _orphaned_groups(parent):
                _empty_and_remove(self._tree(name))

    def _tree(self, name: str) -> Version1Tree:
        return Version1Tree({key: os.path.join(path, name) for key, path in self.groups.parents.items()})


class Version2Slot(Slot):
    """A group that a child is forked into, or enters itself."""

    tree: Version2Tree

    def group_files(self) -> tuple[list[str], list[str]]:
        return [os.path.join(self.tree.path, "cgroup.procs")], []


class Version2Containment(Containment):
    """A version 2 group; the child is forked into it."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = cgroup.Version2()
        self.name, self.controllers = self.groups.name, self.groups.controllers

    def prepare(self, stdio: prefork.Stdio) -> Slot:
        stdio.open_stdin()
        path = self.groups.make(_group_name())[""]
        slot = Version2Slot(Version2Tree(path))
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            slot.pid, slot.orders = fork_child(stdio, self.mounts, lambda: clone(cgroup_fd=fd))
        finally:
            os.close(fd)
        return slot

    def trees_of_dead_keeper(self, pid: int, started: int) -> list[Tree]:
        parent = self.groups.parent
        return [Version2Tree(os.path.join(parent, name)) for name in _groups_of(parent, pid, started)]

    def remove_orphaned_trees(self) -> None:
        for name in _orphaned_groups(self.groups.parent):
            _empty_and_remove(Version2Tree(os.path.join(self.groups.parent, name)))


class NamespaceContainment(Containment):
    """A pid namespace with a small init that reaps, reports the command's status, and ends all processes with it."""

    name = "pid-namespace"

    def __init__(self) -> None:
        privileged = cap_sys_admin()
        self.flags = CLONE_NEWPID | (0 if privileged else CLONE_NEWUSER)
        # The child enters it when it has its orders: an earlier copy would lack the command's workspace.
        self.mounts: Mounts | None = Mounts(proc=True, cgroups=privileged)
        self._probe()

    @property
    def namespaces(self) -> list[str]:
        return ["mount", "pid"] + (["user"] if self.flags & CLONE_NEWUSER else [])

    def _probe(self) -> None:
        uid, gid = os.geteuid(), os.getegid()
        try:
            pid = clone(self.flags)
        except OSError as error:
            raise cgroup.CgroupError(f"a pid namespace cannot be created: {error.strerror}") from error
        if pid == 0:
            try:
                self._map_ids(uid, gid)
                assert self.mounts is not None
                self.mounts.enter("/")
            except OSError:
                os._exit(1)
            os._exit(0)
        if os.waitpid(pid, 0)[1] != 0:
            raise cgroup.CgroupError("a pid namespace can be created, but its /proc cannot be mounted")

    def _map_ids(self, uid: int, gid: int) -> None:
        if self.flags & CLONE_NEWUSER:
            cgroup.write("/proc/self/setgroups", "deny")
            cgroup.write("/proc/self/uid_map", f"{uid} {uid} 1")
            cgroup.write("/proc/self/gid_map", f"{gid} {gid} 1")

    def prepare(self, stdio: prefork.Stdio) -> Slot:
        stdio.open_stdin()
        uid, gid = os.geteuid(), os.getegid()
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        ours, theirs = socket.socketpair()
        pid = prefork.fork_with_signals_held(lambda: clone(self.flags))
        if pid == 0:
            try:
                ours.close()
                os.close(status_read)
                self._init(uid, gid, theirs, stdio, status_write)
            finally:
                os._exit(127)
        theirs.close()
        os.close(status_write)
        slot = Slot(NamespaceTree(pid, start_time(pid) or 0))
        slot.pid, slot.orders, slot.status_pipe = pid, ours, status_read
        return slot

    def _init(self, uid: int, gid: int, orders: socket.socket, stdio: prefork.Stdio, status: int) -> NoReturn:
        set_parent_death_signal(signal.SIGKILL)
        set_process_name(prefork.INIT_NAME)
        try:
            self._map_ids(uid, gid)
        except OSError:
            os._exit(1)
        try:
            child = _clone_patiently(orders)
        except OSError as error:
            orders.sendall(prefork.explain(error).encode())
            os._exit(127)
        if child == 0:
            try:
                os.close(status)
                stdio.keep_child_ends()
                prefork.run(orders, stdio, self.mounts)
            finally:
                os._exit(127)
        orders.close()
        for fd in (stdio.stdin, stdio.stdout, stdio.stderr, stdio.child_in, stdio.child_out, stdio.child_err):
            os.close(fd)
        _reap_for_ever(child, status)


def _reap_for_ever(child: int, status_pipe: int) -> NoReturn:
    """As init: reap all processes, report the command's status, stay until the keeper ends the namespace."""
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            signal.pause()
            continue
        if pid == child:
            os.write(status_pipe, STATUS.pack(status))


class SessionContainment(Containment):
    """Only sessions and a subreaper."""

    name = "session"

    def prepare(self, stdio: prefork.Stdio) -> Slot:
        stdio.open_stdin()
        marker = f"{os.getpid()}-{start_time(os.getpid())}"
        slot = Slot(SessionTree(os.getpid(), marker))
        slot.pid, slot.orders = fork_child(stdio, self.mounts)
        return slot


def choose(wanted: str) -> Containment:
    """The best available mechanism, or the requested one."""
    reasons = []
    for make in _ORDER[wanted]:
        try:
            return make()
        except (cgroup.CgroupError, OSError) as error:
            reasons.append(str(error))
    raise cgroup.CgroupError("; ".join(reasons))


def _version2_with_controllers() -> Containment:
    found = Version2Containment()
    if not found.controllers:
        raise cgroup.CgroupError("no version 2 controller is delegated")
    return found


# A version 2 group without controllers contains the tree but limits nothing: worse than version 1, better than a
# namespace.
_CGROUPS: list[Callable[[], Containment]] = [_version2_with_controllers, Version1Containment, Version2Containment]
_ORDER: dict[str, list[Callable[[], Containment]]] = {
    "auto": [*_CGROUPS, NamespaceContainment, SessionContainment],
    "cgroup": _CGROUPS,
    "pid-namespace": [NamespaceContainment],
    "session": [SessionContainment],
}


def _groups_of(parent: str, pid: int, started: int) -> list[str]:
    prefix = f"{GROUP_PREFIX}{pid}-{started}-"
    return [name for name in os.listdir(parent) if name.startswith(prefix)]


def _orphaned_groups(parent: str) -> list[str]:
    names = []
    for name in os.listdir(parent):
        if name.startswith(GROUP_PREFIX):
            parts = name.removeprefix(GROUP_PREFIX).split("-")
            if all(part.isdigit() for part in parts) and not is_alive(int(parts[0]), int(parts[1])):
                names.append(name)
    return names


def _empty_and_remove(tree: Tree) -> None:
    for _ in range(50):
        if tree.empty():
            break
        tree.kill()
    tree.remove()
