"""The keeper of one command, from its orders to its exit record.

    orders --> handle on disk --released--> running --leader ended, tree empty, pipes closed--> record --> idle again

The handle is written before the command is released, and only one can exist: recovery can fence off a late keeper, and
no command ever starts twice.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time

from debug_server.runner.keeper import deadlines, hook, limits, record, redaction, verbs
from debug_server.runner.keeper.classify import Stop
from debug_server.runner.keeper.containment import STATUS
from debug_server.runner.keeper.control import Control
from debug_server.runner.keeper.ladder import Ladder
from debug_server.runner.keeper.loop import Loop
from debug_server.runner.keeper.output import Output, RelayBuffer
from debug_server.runner.keeper.prefork import explain
from debug_server.runner.keeper.stdin import Stdin
from debug_server.runner.keeper.streams import DISK_RETRY, Streams
from debug_server.runner.keeper.tree import MARKER
from debug_server.runner.log_format import STDERR, STDOUT, LogWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from debug_server.runner.keeper.spare import Spare

_HELD_PIPE_SECONDS = 1.0  # how long to wait for a pipe that a process outside the tree holds open
_SLOW_CLIENT_SECONDS = 60.0  # how long the rest of a relayed stdout waits for an attached client
_MAX_WAIT = 3600.0
_PENDING_TURNS = 2  # a new client is accepted in one turn and read in the next


class Keeper:
    """Owns one command."""

    def __init__(self, spare: Spare, orders: dict[str, Any], *, last: bool) -> None:
        self.orders = orders
        self._last = last  # this process runs no other command after this one
        self.limits: limits.Plan = orders["limits"]
        self.slot, self.tree, self.stdio, self.loop = spare.slot, spare.slot.tree, spare.stdio, Loop()
        self.handle = {
            "command_id": orders["command_id"],
            "attempt": orders["attempt"],
            "keeper": spare.identity,
            "tree": self.tree.describe(),
            "log_path": orders["log_path"],
            "started_ns": time.time_ns(),
            "ends_by": deadlines.ends_by(orders, time.monotonic()),
        }
        self.control = Control(
            self.loop,
            lambda client, message: verbs.answer(self, client, message),
            lambda client, write_id, data: verbs.write_stdin(self, client, write_id, data),
        )
        self.launcher = self.control.add(spare.connection)
        self.relay = RelayBuffer() if orders["relay"] else None
        self.orphan_timer = deadlines.OrphanTimer(self.control, orders["orphan_seconds"])
        self.output = Output(LogWriter(orders["log_path"]), self.asked("output_bytes"), orders["disk_reserve"])
        self.streams = Streams(self.loop, self.control, self.output, self.relay, redaction.filters(orders))
        self.streams.over_cap = self._over_cap
        self.streams.over_disk = lambda message: self.end(Stop("limit_exceeded", message, "disk"))
        self.ladder = Ladder(self.tree, orders["kill_grace"], lambda: hook.start(self))
        self.meter = limits.Meter(self.tree)
        self.usage = limits.Usage()
        self.stdin: Stdin | None = None
        self.status: int | None = None
        self.stop: Stop | None = None
        self.spawn_error: str | None = None
        self._never_started = False
        self.started = 0.0
        self.leader_ended: float | None = None
        self.evidence: dict[str, Any] = {"namespaces": spare.namespaces} if spare.namespaces else {}
        self.asked_to_end = False
        self.wakeup = spare.wakeup
        self._run_dir, self._wanted = spare.run_dir, spare.wanted
        self.loop.watch(self.wakeup, self._reap)
        # A handler may run during a write to the log: it only sets a flag, and the wakeup fd wakes the loop.
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "asked_to_end", True))
        if self.slot.status_pipe is not None:
            self.loop.watch(self.slot.status_pipe, self._read_status)

    def asked(self, name: str) -> Any:
        """The value of a limit; None if it is not set."""
        return self.limits[name]["asked"] if name in self.limits else None

    # -- starting -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the command from start to end."""
        # Before the command is released: from here on recovery can find it.
        listener = self._run_dir.take(self.orders["run_dir"], self.handle, lambda: self._wanted(self.orders["owner"]))
        self.control.listen(listener)
        self._start()
        self.control.broadcast({"event": "started", "handle": self.handle})
        while not self._is_over():
            now = time.monotonic()
            if self.asked_to_end:
                self.cancel("its keeper was asked to end")
            self._check_limits(now)
            self.ladder.step(now)
            self.loop.turn(self._patience(now))
        self._finish()

    def _start(self) -> None:
        try:
            limits.apply(self.tree, self.limits)
            self._release(self._open_stdio())
            if self.stdin is not None and self.orders["stdin_text"] is not None:
                self.stdin.feed(self.orders["stdin_text"].encode("utf-8", "surrogateescape"))
        except LookupError as error:
            self.spawn_error = str(error.args[0])
        except ValueError as error:
            self.spawn_error = str(error)
        except OSError as error:
            self.spawn_error = explain(error)
        if self.streams.terminal is not None:
            for fd in (self.stdio.stdin, self.stdio.stdout, self.stdio.stderr):
                os.close(fd)
        elif self.stdin is None:  # not earlier: a preforked child has all six ends and closes the keeper's three
            os.close(self.stdio.stdin)
        if self.spawn_error is not None:
            self.started = self.leader_ended = time.monotonic()
            self.ladder.begin(self.started, hook=False)
        self.stdio.keep_parent_ends()

    def _open_stdio(self) -> str | None:
        """Watch the child's streams; returns the name of its terminal, if it has one."""
        if self.orders["tty"]:
            return self._open_terminal()
        self.streams.open(self.stdio.stdout, STDOUT)
        self.streams.open(self.stdio.stderr, STDERR)
        if self.orders["stdin"]:
            self.stdin = Stdin(self.stdio.stdin, terminal=False, loop=self.loop, control=self.control)
        return None

    def _open_terminal(self) -> str:
        terminal, self._follower = os.openpty()  # the follower end stays open until the child has it
        verbs.resize(terminal, self.orders["tty"]["rows"], self.orders["tty"]["cols"])
        self.streams.terminal = terminal
        self.streams.open(terminal, STDOUT)
        self.stdin = Stdin(terminal, terminal=True, loop=self.loop, control=self.control)
        self.streams.on_writable = self.stdin.pump
        return os.ttyname(self._follower)

    def _release(self, tty: str | None) -> None:
        identity = self.handle["keeper"]
        message = {
            "argv": self.orders["argv"],
            "env": {**self.orders["env"], MARKER: f"{identity['pid']}-{identity['start_time']}"},
            "cwd": self.orders["cwd"],
            "containers": self.orders["containers"],
            "umask": self.orders["umask"],
            "stdin": bool(self.orders["stdin"]),
            "tty": tty,
            "cpus": limits.affinity(self.limits),
            "enter": [],
            "rlimits": limits.rlimits(self.limits),
        }
        self.started = self.streams.last_output = time.monotonic()
        self.tree.include_below(os.getpid())
        self.slot.spawn(message, self.stdio)
        limits.set_process_limit(self.tree, self.limits)
        if self.slot.orders is not None:
            self.loop.watch(self.slot.orders.fileno(), self._on_child)

    def _on_child(self, fd: int, _: int) -> None:
        """The orders socket closes after exec, or has the error if exec failed."""
        assert self.slot.orders is not None
        try:
            data = self.slot.orders.recv(1 << 16)
        except OSError:  # the child ended before it read its orders; if by a signal, the signal is the exit reason
            data, self._never_started = b"", True
        if data:
            self.spawn_error = data.decode()
        self.loop.unwatch(fd)
        self.slot.orders.close()
        if self.streams.terminal is not None:
            os.close(self._follower)

    # -- running --------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        if self.leader_ended is None:
            return False
        if self.ladder.gave_up:
            return True
        if self.ladder.state == "hook":
            return False
        if not self.tree.empty() or self.streams.blocked:
            return False
        return self.streams.done or self._pipes_held_outside()

    def _pipes_held_outside(self) -> bool:
        """Whether only a process outside the (empty) tree still has a pipe open, and wrote nothing for a while."""
        heard = self.streams.last_output
        patience = _SLOW_CLIENT_SECONDS if self.streams.awaits_client else _HELD_PIPE_SECONDS
        if time.monotonic() - max(self.leader_ended or 0.0, heard) <= patience:
            return False
        self._handle_pending_events()
        return self.streams.done or self.streams.last_output == heard

    def _handle_pending_events(self) -> None:
        """Handle events that are already pending.

        A keeper that was stopped or got no CPU may see that a limit has passed before it sees what arrived in time:
        output, the command's own end, a client.
        """
        for _ in range(_PENDING_TURNS):
            self.loop.turn(0.0)

    def _patience(self, now: float) -> float:
        until = now + _MAX_WAIT
        if self.ladder.deadline is not None:
            until = min(until, self.ladder.deadline)
        if self.streams.blocked:
            until = min(until, now + DISK_RETRY)
        if self.leader_ended is not None:
            until = min(until, now + 0.01)
        until = min(until, self.streams.flush_at)
        if self.leader_ended is None and not self.ladder.active:
            until = min(until, deadlines.nearest(self, now))
        return max(until - now, 0.0)

    def _check_limits(self, now: float) -> None:
        if self.streams.blocked:
            self.streams.retry_disk(now, patient=self.stop is None)
        elif now >= self.streams.flush_at:
            self.streams.flush(idle=True)
        if deadlines.passed(self, now) is not None:
            self._handle_pending_events()
            if (stop := deadlines.passed(self, now)) is not None:
                self.end(stop)

    def _over_cap(self) -> None:
        message = f"wrote more than {self.asked('output_bytes')} bytes of output"
        self.end(Stop("limit_exceeded", message, "output_bytes"))
        self.ladder.kill_now(time.monotonic())

    def end(self, stop: Stop) -> None:
        """End the tree; the first reason is kept.

        Also called after the leader has ended by itself: its remaining output may exceed the limit.
        """
        if self.stop is not None:
            return
        self.stop = stop
        self._send_ending()
        self.output.note(f"{stop.reason}: {stop.message}")
        if self.leader_ended is None:
            self.evidence["processes_at_kill"] = record.describe(self)
            self.ladder.begin(time.monotonic(), hook=True)

    def _send_ending(self) -> None:
        """Tell relay clients at once, not only when the tree is empty."""
        if self.relay is not None:
            self.control.broadcast({"event": "ending"})

    def cancel(self, message: str) -> None:
        """Cancel on request; a command that has already ended by itself is not cancelled."""
        self._reap(self.wakeup, 0)
        status = self.slot.status_pipe
        if self.leader_ended is None and status is not None and select.select([status], [], [], 0)[0]:
            self._read_status(status, 0)
        if self.leader_ended is None:
            self.end(Stop("cancelled", message))

    # -- the tree -------------------------------------------------------------------------------------------------

    def leader(self) -> int:
        """The command's first process; in a namespace it is the first one below init."""
        if self.slot.status_pipe is None:
            return self.slot.pid
        below = self.tree.pids()
        return below[0] if below else self.slot.pid

    def _reap(self, fd: int, _: int) -> None:
        try:
            os.read(fd, 4096)
        except BlockingIOError:
            pass
        ended = None
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self.usage.add(usage)
            if pid == self.ladder.hook_pid:
                self.ladder.hook_ended(time.monotonic())
            elif pid == self.slot.pid:
                ended = status
        if ended is not None:  # only when all are reaped: a zombie would count as a leftover
            self._leader_gone(ended)

    def _read_status(self, fd: int, _: int) -> None:
        data = os.read(fd, STATUS.size)
        self.loop.unwatch(fd)
        if len(data) == STATUS.size:
            self._leader_gone(STATUS.unpack(data)[0])

    def _leader_gone(self, status: int) -> None:
        if self.leader_ended is not None:
            return
        self.leader_ended = time.monotonic()
        self.status = status
        self._send_ending()
        if not self.tree.empty():
            if leftovers := record.describe(self):
                self.evidence["leftovers"] = leftovers
            self.ladder.begin(self.leader_ended, hook=False)

    # -- ending ---------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._reap_init()
        self.streams.flush(idle=False)
        if self._never_started and self.stop is None and not os.WIFSIGNALED(self.status or 0):
            self.spawn_error = "its process ended before it could execute the program"
        exit_record = record.assemble(self, time.monotonic())
        self._publish(exit_record)
        self._send_exit(exit_record)
        self.slot.release(self.limits, reusable=not self.ladder.active and "counters" not in exit_record["evidence"])
        self._reap(self.wakeup, 0)
        deadline = time.monotonic() + 1.0
        while not self.control.all_sent and time.monotonic() < deadline:
            self.loop.turn(0.1)
        self.control.close(keep=self.launcher)
        if self.stdin is not None:
            self.stdin.discard()
        self.streams.close()
        if self.slot.status_pipe is not None:
            os.close(self.slot.status_pipe)
        self.loop.close()

    def _reap_init(self) -> None:
        """Reap the namespace's init: its resource usage includes that of the processes it reaped."""
        if self.slot.status_pipe is None or self.ladder.gave_up:
            return
        self.tree.remove()
        try:
            self.usage.add(os.wait4(self.slot.pid, 0)[2])
        except ChildProcessError:
            pass  # already reaped with its tree

    def _send_exit(self, exit_record: dict[str, Any]) -> None:
        """Send the exit event, to the launcher last: it may send the next orders at once."""
        event = {"event": "exit", "record": exit_record, "again": False}
        for client in list(self.control.clients.values()):
            if client is not self.launcher:
                self.control.send(client, event)
        event["again"] = not self._last and not self.ladder.gave_up and self.control.all_sent
        self.control.answer(self.launcher, event)

    def _publish(self, exit_record: dict[str, Any]) -> None:
        """Write the exit record; on a full disk, retry until it succeeds."""
        while True:
            try:
                self.output.end()
                self._run_dir.publish(exit_record)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                    return  # the directory is gone: a server has stored the record from the socket
                self._last = True  # the launcher gets the end now, and this keeper serves no other command
                self._send_exit(exit_record)
                self.loop.turn(DISK_RETRY)
            else:
                return
