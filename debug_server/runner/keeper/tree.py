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

from debug_server.runner.keeper.linux import is_alive, stat_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARKER = "DEBUG_SERVER_RUN"
_STOP_PASSES = 10


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
    beside: int | None = None  # a process below the keeper that is none of the command's
    left: frozenset[int] | set[int] = frozenset()  # processes that were seen outside of their control group

    def include_below(self, keeper: int) -> None:
        """From now on everything below ``keeper``, the calling process, belongs to the tree."""

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

    def remove(self) -> bool:
        """Give back what the tree occupied; call when empty. False when something is left to remove later."""
        return True


def has_children() -> bool:
    """Whether this process has children, zombies too."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


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

    def remove(self) -> bool:
        self.kill()
        return True


class SessionTree(Tree):
    """Everything below one subreaper."""

    mechanism = "session"

    def __init__(self, reaper: int, marker: str) -> None:
        self.reaper, self.marker = reaper, marker

    def pids(self) -> list[int]:
        return descendants(self.reaper)

    def empty(self) -> bool:
        """As the kernel counts: a list may miss a process that is never the same for longer than a moment."""
        return not (self.pids() if self.reaper != os.getpid() else has_children())

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
