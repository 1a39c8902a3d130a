"""A slot: a prepared process tree for one command, and the two ways to start a program inside it.

A preforked child is forked ahead of time, inside its namespace or group, and calls exec when it gets its orders. Where
the keeper can enter the groups itself (version 1), it enters, spawns and leaves, which is three times as fast (0.9 ms
instead of 2.9 ms for a start); a terminal or a per-process limit still needs a preforked child.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
from collections.abc import Callable

from debug_server.runner.keeper import cgroup, prefork
from debug_server.runner.keeper.group_tree import Version1Tree
from debug_server.runner.keeper.linux import clone
from debug_server.runner.keeper.tree import Tree
from debug_server.runner.sandbox import confine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from debug_server.runner.keeper.mounts import Mounts


class Slot:
    """A tree that is ready for its first process."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.spent = False  # it was used and cannot be used again
        self.pid = 0  # the command's first process, or the namespace's init
        self.orders: socket.socket | None = None  # closes after exec, has the error if exec failed
        self.status_pipe: int | None = None  # in a namespace: the pipe for the command's wait status
        self.init_pipe: int | None = None  # in namespaces of its own: the pipe on which their init reports its end

    def spawn(self, orders: dict[str, Any], stdio: prefork.Stdio, home: int) -> None:
        """Start the command; OSError or LookupError with the reason if that fails.

        ``home`` is a descriptor of the working directory.
        """
        self.spent = True
        if self.status_pipe is None and has_own_namespaces(orders):  # else its init is prepared
            self._dismiss_child()
            orders["enter"], orders["leave"] = self.group_files()
            self._fork_into_namespaces(orders["isolation"], stdio)
        self._send(orders)

    def group_files(self) -> tuple[list[str], list[str]]:
        """The files by which a process enters the tree's groups, and those by which the keeper's child leaves them."""
        return [], []

    def _send(self, orders: dict[str, Any]) -> None:
        assert self.orders is not None
        try:
            self.orders.sendall(marshal.dumps(orders))
            self.orders.shutdown(socket.SHUT_WR)
        except BrokenPipeError as error:  # it has ended already, and may have said why
            if said := self.orders.recv(1 << 16).lstrip(prefork.NO_PROCESS):
                raise LookupError(said.decode()) from error
            raise

    def _dismiss_child(self) -> None:
        """End the child that was forked ahead of time: it is in the keeper's namespaces."""
        if self.orders is not None:
            self.orders.close()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _fork_into_namespaces(self, plan: dict[str, Any], stdio: prefork.Stdio) -> None:
        """Fork the init of the command's namespaces, which waits for its orders."""
        plan["ids"] = os.geteuid(), os.getegid()
        self.init_pipe, report = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.pid, self.orders = fork_child(stdio, None, lambda: clone(confine.clone_flags(plan)), report)
        except OSError:
            os.close(self.init_pipe)
            self.init_pipe = None
            raise
        finally:
            os.close(report)
        self.tree.own_init = self.pid

    def release(self, *, reusable: bool) -> None:
        """After the end of the command: remove the tree, or prepare it for the next command."""
        self.tree.remove()

    def abandon(self) -> None:
        """End all processes of the tree, and remove it."""
        if self.orders is not None:
            self.orders.close()
        while not self.tree.empty():
            self.tree.kill()
            try:
                os.waitpid(self.pid, 0)
            except ChildProcessError:
                break
        self.tree.remove()


def has_own_namespaces(orders: dict[str, Any]) -> bool:
    """Whether the command runs in namespaces of its own."""
    return orders["isolation"] is not None and orders["isolation"]["level"] == confine.NAMESPACE


def fork_child(
    stdio: prefork.Stdio, mounts: Mounts | None, fork: Callable[[], int] = clone, report: int | None = None
) -> tuple[int, socket.socket]:
    """Fork a child that waits for its orders; returns its pid and the socket for them.

    ``report``: see ``prefork.run``.
    """
    ours, theirs = socket.socketpair()
    pid = prefork.fork_with_signals_held(fork)
    if pid == 0:
        try:
            ours.close()
            stdio.keep_child_ends()
            prefork.run(theirs, stdio, mounts, report)
        finally:
            os._exit(127)  # it must never continue as a second keeper
    theirs.close()
    return pid, ours


class Version1Slot(Slot):
    """Groups that the keeper can enter and leave."""

    tree: Version1Tree

    def __init__(self, groups: dict[str, str], parents: dict[str, str], mounts: Mounts | None) -> None:
        self._files = cgroup.ControlFiles()
        super().__init__(Version1Tree(groups, self._files))
        self._mounts = mounts
        self._protected = False  # the command could not write to its groups, so their limits are known
        # `cpu` too, without a quota: outside of it each new session gets an autogroup, which costs six times as much as
        # the moves. `pids` is left last: from then on until `limits.set_process_limit` its limit is one too high.
        used = sorted(groups, key="pids".__eq__)
        self._enter, self._leave = _task_files(groups, used), _task_files(parents, used)
        self._files.open_for_writing([*self._enter, *self._leave])  # in the command's mount namespace it is too late

    def release(self, *, reusable: bool) -> None:
        """Reset the groups for the next command, if nothing of this one is left in them."""
        self.spent = not (reusable and self._protected and self.tree.reset())
        if self.spent:
            self.tree.remove()

    def spawn(self, orders: dict[str, Any], stdio: prefork.Stdio, home: int) -> None:
        self.spent, self.orders = True, None
        isolated = orders["isolation"] is not None
        self._protected = (self._mounts is not None or isolated) and not orders["containers"]
        if has_own_namespaces(orders):
            super().spawn(orders, stdio, home)
            return
        if orders["tty"] or orders["rlimits"] or isolated:
            orders["enter"] = self._enter
            self.pid, self.orders = fork_child(stdio, None if isolated else self._mounts)
            self._send(orders)
            return
        try:
            if self._mounts is not None:  # before the groups: it is no work of the command
                self._mounts.enter_often(orders["cwd"], containers=orders["containers"])
            os.chdir(orders["cwd"])
            self.pid = self._spawn_inside(orders, stdio)
        finally:
            if self._mounts is not None:
                self._mounts.leave()
            os.fchdir(home)

    def group_files(self) -> tuple[list[str], list[str]]:
        return self._enter, self._leave

    def _spawn_inside(self, orders: dict[str, Any], stdio: prefork.Stdio) -> int:
        """Spawn from inside the groups."""
        processors = os.sched_getaffinity(0) if orders["cpus"] else set()
        mask = os.umask(orders["umask"])
        try:
            if orders["cpus"]:
                os.sched_setaffinity(0, orders["cpus"])
            for path in self._enter:
                self._files.write(path, "0")
            return prefork.spawn(orders, stdio)
        finally:
            for path in self._leave:
                self._files.write(path, "0")
            if processors:
                os.sched_setaffinity(0, processors)
            os.umask(mask)


def _task_files(groups: dict[str, str], controllers: list[str]) -> list[str]:
    """The files of these controllers' groups to enter them by, each once: controllers may share a hierarchy."""
    return list(dict.fromkeys(f"{groups[controller]}/tasks" for controller in controllers))
