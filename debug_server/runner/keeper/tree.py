"""A command's process tree: who is in it, how to end all of it, whether it is empty.

Four mechanisms, best first: a version 2 cgroup (``cgroup.kill``), version 1 cgroups (no fork can escape a group whose
``pids.max`` is 0, so killing what is listed converges), a pid namespace (its init takes everything along), and a
session below a subreaper (stop everything that is seen until nothing new appears, then kill).
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable

from debug_server.runner.keeper import cgroup
from debug_server.runner.keeper.linux import is_alive, stat_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARKER = "DEBUG_SERVER_RUN"
_STOP_PASSES = 10
_NO_GROUP_BELOW = 2  # links of a directory without directories
_LEFT_BYTES = 1 << 20


def send(pid: int, number: int) -> None:
    """Signal a process that may be gone, or that a setuid program made somebody else's."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def signal_member(tree: Tree, pid: int, number: int) -> None:
    """Signal a process only while it belongs to ``tree``; ProcessLookupError when it does not any more.

    The descriptor is opened before the look: if the number was given to another process in between, either that one is
    no member, or the descriptor's process is gone.
    """
    process = os.pidfd_open(pid)
    try:
        if pid not in tree.pids():
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)


def descendants(root: int) -> list[int]:
    """Every live process below ``root``, nearest first."""
    found: list[int] = []
    queue = [root]
    while queue:
        for child in children(queue.pop()):
            found.append(child)
            queue.append(child)
    return [pid for pid in found if not _is_zombie(pid)]


def children(pid: int) -> list[int]:
    """The children of a process, zombies too; may miss some while others of them end."""
    result: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return result
    for task in tasks:  # children are listed under the thread that forked them
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                result += map(int, file.read().split())
        except OSError:
            continue
    return result


def _is_zombie(pid: int) -> bool:
    fields = stat_fields(pid)
    return fields is None or fields[0] in "ZX"


class Tree:
    """What the four mechanisms share."""

    mechanism = ""

    def pids(self) -> list[int]:
        """The live members."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Enough to rebuild this value in another process."""
        raise NotImplementedError

    def terminate(self) -> None:
        """Ask every member to end; a stopped one must be continued to hear it."""
        for pid in self.pids():
            send(pid, signal.SIGTERM)
            send(pid, signal.SIGCONT)

    def kill(self) -> None:
        """One pass of ending everything at once; repeat until ``empty``."""
        raise NotImplementedError

    def empty(self) -> bool:
        """Whether no process is left."""
        return not self.pids()

    def remove(self) -> None:
        """Give back what the tree occupied; call when empty."""


class Version2Tree(Tree):
    """Members of one version 2 group."""

    mechanism = "cgroup-v2"

    def __init__(self, path: str) -> None:
        self.path = path

    def pids(self) -> list[int]:
        return _members(self.path)

    def describe(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "groups": {"": self.path}}

    def kill(self) -> None:
        try:
            cgroup.write(f"{self.path}/cgroup.kill", "1")
        except FileNotFoundError:
            pass

    def empty(self) -> bool:
        try:
            return "populated 0" in cgroup.read(f"{self.path}/cgroup.events")
        except OSError:
            return True

    def remove(self) -> None:
        _remove_below(self.path)


class Version1Tree(Tree):
    """Members of one version 1 pids group and its siblings in the other hierarchies."""

    mechanism = "cgroup-v1"

    def __init__(self, groups: dict[str, str]) -> None:
        self.groups = groups

    def pids(self) -> list[int]:
        return _members(self.groups["pids"])

    def describe(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "groups": self.groups}

    def kill(self) -> None:
        try:
            cgroup.write(self.groups["pids"] + "/pids.max", "0")
        except FileNotFoundError:
            return
        for pid in self.pids():
            send(pid, signal.SIGKILL)

    def renew(self) -> bool:
        """Make empty groups without limits as good as new; False when they are not, and others are needed.

        To make and remove four groups costs a millisecond. What a command leaves charged to them, pages of files above
        all, would count as the next one's; a little of that is the kernel's own batching.
        """
        try:
            if any(os.stat(path).st_nlink > _NO_GROUP_BELOW for path in self.groups.values()):
                return False
            if "memory" in self.groups:
                if int(cgroup.read(self.groups["memory"] + "/memory.usage_in_bytes")) > _LEFT_BYTES:
                    return False
                cgroup.write(self.groups["memory"] + "/memory.max_usage_in_bytes", "0")
            if "cpuacct" in self.groups:
                cgroup.write(self.groups["cpuacct"] + "/cpuacct.usage", "0")
        except (OSError, ValueError):
            return False
        return True

    def remove(self) -> None:
        for path in self.groups.values():
            _remove_below(path)


class NamespaceTree(Tree):
    """Everything in one pid namespace, by its init."""

    mechanism = "pid-namespace"

    def __init__(self, init: int, started: int) -> None:
        self.init, self.started = init, started

    def pids(self) -> list[int]:
        return descendants(self.init) if is_alive(self.init, self.started) else []

    def describe(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "init": self.init, "started": self.started}

    def kill(self) -> None:
        if is_alive(self.init, self.started):
            send(self.init, signal.SIGKILL)

    def remove(self) -> None:
        self.kill()


class SessionTree(Tree):
    """Everything below one subreaper."""

    mechanism = "session"

    def __init__(self, reaper: int, marker: str) -> None:
        self.reaper, self.marker = reaper, marker

    def pids(self) -> list[int]:
        return descendants(self.reaper)

    def empty(self) -> bool:
        """As the kernel counts: a list may miss a process that is never the same for longer than a moment."""
        if self.reaper != os.getpid():
            return not self.pids()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def describe(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "reaper": self.reaper, "marker": self.marker}

    def kill(self) -> None:
        stop_then_kill(self.pids)


class MarkedTree(Tree):
    """What is left of a session whose keeper is dead: the processes that carry its mark in their environment."""

    mechanism = "session"

    def __init__(self, marker: str) -> None:
        self.marker = f"{MARKER}={marker}".encode()

    def pids(self) -> list[int]:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._carries(name)]

    def _carries(self, pid: str) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return self.marker in file.read().split(b"\0") and not _is_zombie(int(pid))
        except OSError:
            return False

    def kill(self) -> None:
        stop_then_kill(self.pids)


def stop_then_kill(listing: Callable[[], list[int]]) -> None:
    """Kill what ``listing()`` gives, after stopping it: a stopped process cannot fork away from the list."""
    stopped: set[int] = set()
    for _ in range(_STOP_PASSES):
        fresh = set(listing()) - stopped
        if not fresh:
            break
        for pid in fresh:
            send(pid, signal.SIGSTOP)
        stopped |= fresh
    for pid in stopped:
        send(pid, signal.SIGKILL)


def rebuild(description: dict[str, Any]) -> Tree:
    """A dead keeper's tree, from its handle."""
    mechanism = description["mechanism"]
    if mechanism == Version2Tree.mechanism:
        return Version2Tree(description["groups"][""])
    if mechanism == Version1Tree.mechanism:
        return Version1Tree(description["groups"])
    if mechanism == NamespaceTree.mechanism:
        return NamespaceTree(description["init"], description["started"])
    return MarkedTree(description["marker"])


def _members(path: str) -> list[int]:
    """Processes in a group and in the groups that the command made below it."""
    found: list[int] = []
    for directory in _groups_below(path):
        try:
            found += map(int, cgroup.read(f"{directory}/cgroup.procs").split())
        except OSError:
            continue
    return [pid for pid in found if pid > 0]


def _groups_below(path: str) -> list[str]:
    """A group and those below it, outermost first; the link count tells that there are none without a listing."""
    try:
        if os.stat(path).st_nlink <= 2:
            return [path]
    except OSError:
        return []
    return [directory for directory, _, _ in os.walk(path)]


def _remove_below(path: str) -> None:
    for directory in reversed(_groups_below(path)):
        try:
            os.rmdir(directory)
        except OSError:
            continue
