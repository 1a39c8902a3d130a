"""The fork server: forks keepers ahead of time, and ends the trees of keepers that die.

One per server. It passes the socket of each idle keeper to the server, and forks more on request. As parent of the
keepers and subreaper it notices at once when one is killed, and inherits the keeper's processes. When the server ends,
it stays until its last keeper has ended.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time

from debug_server.runner.keeper.cgroup import CgroupError
from debug_server.runner.keeper.containment import Containment, choose
from debug_server.runner.keeper.frames import NO_KEEPER
from debug_server.runner.keeper.linux import become_subreaper, boot_id, set_process_name, start_time
from debug_server.runner.keeper.serve import serve
from debug_server.runner.keeper.spare import install_handlers
from debug_server.runner.keeper.tree import Tree, children, descendants, send_signal, stop_then_kill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_CLEAN_EVERY = 0.01
_REMOVAL_SECONDS = 30.0


class ForkServer:
    """Keepers by pid, and the trees of dead ones."""

    def __init__(self, connection: socket.socket, containment: Containment) -> None:
        self._connection: socket.socket | None = connection
        self._containment = containment
        self._boot = boot_id()
        self._keepers: dict[int, int] = {}  # pid -> start time
        self._dying: dict[Tree, float] = {}  # -> when to give up its removal
        self._orphans = False

    def run(self) -> None:
        """Serve until the server and every keeper are gone."""
        wakeup_read, wakeup_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        install_handlers()
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        while self._connection is not None or self._keepers or self._dying or self._orphans:
            busy = self._dying or self._orphans
            sources = [wakeup_read] + ([self._connection.fileno()] if self._connection else [])
            ready, _, _ = select.select(sources, [], [], _CLEAN_EVERY if busy else None)
            if wakeup_read in ready:
                _drain(wakeup_read)
            self._reap()
            self._clean_up()
            if self._connection is not None and self._connection.fileno() in ready:
                self._serve(wakeup_read, wakeup_write)

    def _serve(self, *inherited: int) -> None:
        assert self._connection is not None
        try:
            wanted = self._connection.recv(4096)
        except OSError:
            wanted = b""
        if not wanted:
            self._connection.close()
            self._connection = None
            for pid in self._keepers:  # continue stopped idle keepers, so that they notice and end
                send_signal(pid, signal.SIGCONT)
            return
        for _ in wanted:
            self._make_keeper(inherited)

    def _make_keeper(self, inherited: tuple[int, ...]) -> None:
        assert self._connection is not None
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            self._report_no_keeper()
            return
        try:
            pid = os.fork()
        except OSError:  # the limit of processes is reached: the server asks again
            ours.close()
            theirs.close()
            self._report_no_keeper()
            return
        if pid == 0:
            unwanted = [self._connection.fileno(), ours.fileno(), *inherited]
            _become_keeper(theirs, unwanted, self._containment, self._boot)
        theirs.close()
        self._keepers[pid] = start_time(pid) or 0
        try:
            socket.send_fds(self._connection, [pid.to_bytes(4, "little")], [ours.fileno()])
        except OSError:
            pass  # the server is gone; the idle keeper notices its closed socket
        ours.close()

    def _report_no_keeper(self) -> None:
        """Report that no keeper can be forked now: pid 0 and no socket."""
        assert self._connection is not None
        try:
            self._connection.sendall(NO_KEEPER)
        except OSError:
            pass  # the server is gone

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                self._orphans |= not self._keepers  # a child that is not a keeper
                return
            # Look for orphans whenever a child ends, not only a keeper: an earlier list of our children may have missed
            # some.
            self._orphans = True
            if pid in self._keepers:
                trees = self._containment.trees_of_dead_keeper(pid, self._keepers.pop(pid))
                self._dying |= dict.fromkeys(trees, time.monotonic() + _REMOVAL_SECONDS)

    def _inherited(self) -> list[int]:
        """Processes that we inherited from killed keepers: our children that are not keepers, and their descendants.

        Our own children only: a process that a keeper's command forks between two checks would look like an orphan.
        """
        roots = [pid for pid in children(os.getpid()) if pid not in self._keepers]
        return roots + [pid for root in roots for pid in descendants(root)]

    def _clean_up(self) -> None:
        for tree in self._dying:
            if not tree.empty():
                tree.kill()
        # A process that left one of the groups may still be in another, which can be removed once it has ended below.
        now = time.monotonic()
        for tree in [tree for tree in self._dying if tree.empty()]:
            if tree.remove() or now > self._dying[tree]:
                del self._dying[tree]
        if self._orphans:
            stop_then_kill(self._inherited)
            self._orphans = bool(self._inherited())


def _become_keeper(connection: socket.socket, unwanted: list[int], containment: Containment, boot: str) -> NoReturn:
    signal.set_wakeup_fd(-1)
    for fd in unwanted:
        os.close(fd)
    try:
        serve(connection, containment, boot)
    finally:
        os._exit(1)


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def main(connection_fd: int, wanted: str, open_files: int) -> None:
    """Choose the containment, send the hello line, serve.

    ``connection_fd`` is a Unix stream socket to the server, ``open_files`` the soft limit that commands inherit.
    """
    connection = socket.socket(fileno=connection_fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    set_process_name("ds-forkserver")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the thread that started us may have blocked signals
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    become_subreaper()
    began = time.monotonic()
    try:
        containment = choose(wanted)
    except CgroupError as error:
        connection.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
        return
    containment.remove_orphaned_trees()
    hello = {**containment.capabilities(), "probe_seconds": round(time.monotonic() - began, 6)}
    connection.sendall(json.dumps(hello).encode() + b"\n")
    gc.collect()
    gc.freeze()  # the collector then never writes to these pages, so keepers share them
    gc.disable()
    ForkServer(connection, containment).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
