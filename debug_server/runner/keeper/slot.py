"""A slot: a prepared process tree for one command, and the two ways to start a program inside it.

A preforked child is forked ahead of time, inside its namespace or group, and calls exec when it gets its orders. Where
the keeper can enter the groups itself (version 1), it enters, spawns and leaves, which is three times as fast (0.9 ms
instead of 2.9 ms for a start); a terminal or a per-process limit still needs a preforked child.
"""

from __future__ import annotations

import marshal
import os
import socket
from collections.abc import Callable

from debug_server.runner.keeper import cgroup, prefork
from debug_server.runner.keeper.group_tree import Version1Tree
from debug_server.runner.keeper.linux import clone
from debug_server.runner.keeper.tree import Tree

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

    def spawn(self, orders: dict[str, Any], stdio: prefork.Stdio, home: int) -> None:
        """Start the command; OSError or LookupError with the reason if that fails.

        ``home`` is a descriptor of the working directory.
        """
        assert self.orders is not None
        self.spent = True
        try:
            self.orders.sendall(marshal.dumps(orders))
            self.orders.shutdown(socket.SHUT_WR)
        except BrokenPipeError as error:  # it has ended already, and may have said why
            if said := self.orders.recv(1 << 16).lstrip(prefork.NO_PROCESS):
                raise LookupError(said.decode()) from error
            raise

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


def fork_child(
    stdio: prefork.Stdio, mounts: Mounts | None, fork: Callable[[], int] = clone
) -> tuple[int, socket.socket]:
    """Fork a child that waits for its orders; returns its pid and the socket for them."""
    ours, theirs = socket.socketpair()
    pid = prefork.fork_with_signals_held(fork)
    if pid == 0:
        try:
            ours.close()
            stdio.keep_child_ends()
            prefork.run(theirs, stdio, mounts)
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
        self._protected = self._mounts is not None and not orders["containers"]
        if orders["tty"] or orders["rlimits"]:
            orders["enter"] = self._enter
            self.pid, self.orders = fork_child(stdio, self._mounts)
            super().spawn(orders, stdio, home)
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

    def _spawn_inside(self, orders: dict[str, Any], stdio: prefork.Stdio) -> int:
        """Spawn from inside the groups."""
        processors = os.sched_getaffinity(0) if orders["cpus"] else set()
        mask = os.umask(orders["umask"])
        try:
            if orders["cpus"]:
                os.sched_setaffinity(0, orders["cpus"])
            for path in self._enter:
                self._files.write(path, "0")
            return _spawn(orders, stdio)
        finally:
            for path in self._leave:
                self._files.write(path, "0")
            if processors:
                os.sched_setaffinity(0, processors)
            os.umask(mask)


def _task_files(groups: dict[str, str], controllers: list[str]) -> list[str]:
    """The files of these controllers' groups to enter them by, each once: controllers may share a hierarchy."""
    return list(dict.fromkeys(f"{groups[controller]}/tasks" for controller in controllers))


def _spawn(orders: dict[str, Any], stdio: prefork.Stdio) -> int:
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_DUP2, stdio.child_out, 1),
        (os.POSIX_SPAWN_DUP2, stdio.child_err, 2),
    ]
    if orders["stdin"]:
        actions.append((os.POSIX_SPAWN_DUP2, stdio.child_in, 0))
    else:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))

    def start(program: str) -> int:
        return os.posix_spawn(
            program,
            orders["argv"],
            orders["env"],
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=prefork.RESTORED_SIGNALS,
        )

    return prefork.start_from_path(start, orders["argv"][0], orders["env"])
