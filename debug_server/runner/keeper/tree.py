"""A command's process tree: lists its processes, ends all of them, and checks whether it is empty.

Four mechanisms, best first: a version 2 cgroup (``cgroup.kill``), version 1 cgroups (with ``pids.max`` 0 no process can
fork, so killing the listed ones converges), a pid namespace (killing its init kills all), and a session below a
subreaper (stop all listed processes until no new one appears, then kill).
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Collection

from debug_server.runner.keeper.linux import is_alive, read_file, stat_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARKER = "DEBUG_SERVER_RUN"
_STOP_PASSES = 10
_LINKS_OF_ONE_THREAD = 3  # of /proc/PID/task; cheaper than to list it


def send_signal(pid: int, number: int) -> None:
    """Signal a process; ignored if it is gone, or belongs to another user after setuid."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def signal_member(tree: Tree, pid: int, number: int) -> None:
    """Signal a process only if it belongs to ``tree``; ProcessLookupError otherwise.

    The pidfd is opened before the check: if the pid is reused in between, either the new process is not a member, or
    the pidfd's process is gone.
    """
    process = os.pidfd_open(pid)
    try:
        if pid not in tree.pids():
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)


def descendants(root: int, known: Collection[int] = ()) -> list[int]:
    """Every live process below ``root`` that is not ``known``, nearest first."""
    found: list[int] = []
    queue = [root]
    while queue:
        for child in children(queue.pop()):
            found.append(child)
            queue.append(child)
    return [pid for pid in found if pid not in known and not _is_zombie(pid)]


def children(pid: int) -> list[int]:
    """The children of a process, zombies too; may miss some while others end."""
    result: list[int] = []
    tasks = f"/proc/{pid}/task"
    try:
        single = os.stat(tasks).st_nlink == _LINKS_OF_ONE_THREAD
        names = [str(pid)] if single else os.listdir(tasks)
    except OSError:
        return result
    for name in names:  # children are listed under the thread that forked them
        try:
            result += map(int, read_file(f"{tasks}/{name}/children").split())
        except OSError:
            continue
    return result


def _is_zombie(pid: int) -> bool:
    fields = stat_fields(pid)
    return fields is None or fields[0] in "ZX"


class Tree:
    """Base of the four mechanisms."""

    mechanism = ""
    excluded: int | None = None  # a process below the keeper that does not belong to the command (the hook)
    own_init: int | None = None  # of the command's own namespaces: it belongs to us, and exits with the last process
    left: frozenset[int] | set[int] = frozenset()  # processes that were found outside their control group

    def include_below(self, keeper: int) -> None:
        """From now on all processes below ``keeper``, the calling process, belong to the tree."""

    def pids(self) -> list[int]:
        """The live members."""
        raise NotImplementedError

    def first_pids(self, count: int) -> list[int]:
        """At most ``count`` of the live members."""
        return self.pids()[:count]

    def describe(self) -> dict[str, Any]:
        """What another process needs to rebuild this object, for the handle."""
        raise NotImplementedError

    def terminate(self) -> None:
        """Send TERM to every member, and CONT, so that stopped ones receive it."""
        for pid in self.pids():
            send_signal(pid, signal.SIGTERM)
            send_signal(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill all members once; repeat until ``empty``."""
        raise NotImplementedError

    def empty(self) -> bool:
        """Whether no process is left."""
        return not self.pids()

    def remove(self) -> bool:
        """Remove groups and namespaces; call it when the tree is empty. False if something is left to remove later."""
        return True


def has_children() -> bool:
    """Whether this process has children, zombies too."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def has_zombies() -> bool:
    """Whether this process has children that have ended and were not reaped."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


class NamespaceTree(Tree):
    """All processes in one pid namespace, by its init."""

    mechanism = "pid-namespace"

    def __init__(self, init: int, started: int) -> None:
        self.init, self.started = init, started

    def pids(self) -> list[int]:
        return descendants(self.init) if is_alive(self.init, self.started) else []

    def describe(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "init": self.init, "started": self.started}

    def kill(self) -> None:
        if is_alive(self.init, self.started):
            send_signal(self.init, signal.SIGKILL)

    def remove(self) -> bool:
        self.kill()
        return True


class SessionTree(Tree):
    """All processes below one subreaper."""

    mechanism = "session"

    def __init__(self, reaper: int, marker: str) -> None:
        self.reaper, self.marker = reaper, marker

    def pids(self) -> list[int]:
        return descendants(self.reaper)

    def empty(self) -> bool:
        """Asks the kernel whether there are children: a list may miss processes that fork and exit quickly."""
        return not (self.pids() if self.reaper != os.getpid() else has_children())

    def describe(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "reaper": self.reaper, "marker": self.marker}

    def kill(self) -> None:
        stop_then_kill(self.pids)


class MarkedTree(Tree):
    """The rest of a session whose keeper is dead: processes with its marker in their environment."""

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
    """Stop all processes of ``listing()``, which then cannot fork, and kill them."""
    stopped: set[int] = set()
    for _ in range(_STOP_PASSES):
        fresh = set(listing()) - stopped
        if not fresh:
            break
        for pid in fresh:
            send_signal(pid, signal.SIGSTOP)
        stopped |= fresh
    for pid in stopped:
        send_signal(pid, signal.SIGKILL)
