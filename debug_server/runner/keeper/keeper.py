"""The keeper of one command, from its orders to its exit record.

    orders --> handle on disk --released--> running --leader ended, tree empty, pipes closed--> record --> idle again

The handle is written before the command is released, and only one can exist: recovery can fence off a late keeper, and
no command ever starts twice.
"""

from __future__ import annotations

import errno
import os
import time

from debug_server.runner.keeper import deadlines, frames, limits, record, verbs
from debug_server.runner.keeper.command import Command
from debug_server.runner.keeper.control import Control
from debug_server.runner.keeper.loop import Loop
from debug_server.runner.keeper.prefork import NO_PROCESS, SPAWN_PATIENCE, SPAWN_RETRY, explain
from debug_server.runner.keeper.spare import Spare
from debug_server.runner.keeper.stdin import Stdin
from debug_server.runner.keeper.streams import DISK_RETRY
from debug_server.runner.keeper.tree import MARKER, signal_member
from debug_server.runner.log_format import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HELD_PIPE_SECONDS = 1.0  # how long to wait for a pipe that a process outside the tree holds open
_SLOW_CLIENT_SECONDS = 60.0  # how long the rest of a relayed stdout waits for an attached client
_MAX_WAIT = 3600.0
_BRIEF_SECONDS = 0.002  # the start of a command that ends within this time is sent with its end, in one message
_PENDING_TURNS = 2  # a new client is accepted in one turn and read in the next


class Keeper:
    """Owns one command."""

    def __init__(self, spare: Spare, orders: dict[str, Any], *, last: bool) -> None:
        self._last = last  # this process runs no other command after this one
        self._spare, self._stdio, self._run_dir = spare, spare.stdio, spare.run_dir
        handle = {
            "command_id": orders["command_id"],
            "attempt": orders["attempt"],
            "keeper": spare.identity,
            "tree": spare.slot.tree.describe(),
            "log_path": orders["log_path"],
            "started_ns": time.time_ns(),
            "ends_by": deadlines.ends_by(orders, time.monotonic()),
        }
        loop = Loop()
        control = Control(
            loop,
            lambda client, message: verbs.answer(self._command, client, message),
            lambda client, write_id, data: verbs.write_stdin(self._command, client, write_id, data),
            spare.fork_server,
        )
        self._launcher = control.add(spare.connection)
        self._command = Command(spare, orders, handle, loop, control)
        self._deadlines = deadlines.Deadlines(self._command)
        self._never_started = False
        self._start_event = b""  # until it is sent
        self._start_event_at = 0.0

    # -- starting -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the command from start to end."""
        command = self._command
        orders = command.orders
        handle = frames.to_json(command.handle)
        # Before the command is released: from here on recovery can find it.
        listener = self._run_dir.take(orders["run_dir"], handle, lambda: self._spare.wanted(orders["owner"]))
        command.control.listen(listener)
        self._start()
        self._start_event = frames.encode(frames.JSON, b'{"event":"started","handle":%s}' % handle)
        if command.stdin is None and command.relay is None:
            self._start_event_at = command.started + _BRIEF_SECONDS
        while not self._is_over():
            now = time.monotonic()
            if self._start_event and now >= self._start_event_at:
                self._send_start()
            if self._spare.asked_to_end:
                command.cancel("its keeper was asked to end")
            self._check_limits(now)
            command.ladder.step(now)
            command.loop.turn(self._patience(now))
        self._finish()

    def _send_start(self) -> None:
        event, self._start_event = self._start_event, b""
        self._command.control.answer_bytes(self._launcher, event)

    def _start(self) -> None:
        command = self._command
        try:
            limits.apply(command.tree, command.limits)
            self._release(self._open_stdio())
            if command.stdin is not None and command.orders["stdin_text"] is not None:
                command.stdin.feed(command.orders["stdin_text"].encode("utf-8", "surrogateescape"))
        except LookupError as error:
            command.spawn_error = str(error.args[0])
        except ValueError as error:
            command.spawn_error = str(error)
        except OSError as error:
            command.spawn_error = explain(error)
        if command.streams.terminal is not None:
            self._stdio.close_stdin()
            for fd in (self._stdio.stdout, self._stdio.stderr):
                os.close(fd)
        elif command.stdin is None:  # not earlier: a preforked child has all six ends and closes the keeper's three
            self._stdio.close_stdin()
        if command.spawn_error is not None:
            command.started = command.leader_ended = time.monotonic()
            command.ladder.begin(command.started, hook=False)
            if command.stop is not None:  # cancelled while no process could be created
                command.spawn_error = None
        self._stdio.keep_parent_ends()

    def _open_stdio(self) -> str | None:
        """Watch the child's streams; returns the name of its terminal, if it has one."""
        command = self._command
        if command.orders["tty"]:
            return self._open_terminal()
        command.streams.open(self._stdio.stdout, STDOUT)
        command.streams.open(self._stdio.stderr, STDERR)
        if command.orders["stdin"]:
            if self._stdio.stdin < 0:
                self._stdio.open_stdin()
            command.stdin = Stdin(self._stdio.stdin, terminal=False, loop=command.loop, control=command.control)
        return None

    def _open_terminal(self) -> str:
        command = self._command
        terminal, self._follower = os.openpty()  # the follower end stays open until the child has it
        verbs.resize(terminal, command.orders["tty"]["rows"], command.orders["tty"]["cols"])
        command.streams.terminal = terminal
        command.streams.open(terminal, STDOUT)
        command.stdin = Stdin(terminal, terminal=True, loop=command.loop, control=command.control)
        command.streams.on_writable = command.stdin.pump
        return os.ttyname(self._follower)

    def _release(self, tty: str | None) -> None:
        command, orders = self._command, self._command.orders
        identity = command.handle["keeper"]
        message = {
            "argv": orders["argv"],
            "env": {**orders["env"], MARKER: f"{identity['pid']}-{identity['start_time']}"},
            "cwd": orders["cwd"],
            "containers": orders["containers"],
            "umask": orders["umask"],
            "stdin": bool(orders["stdin"]),
            "tty": tty,
            "cpus": limits.affinity(command.limits),
            "enter": [],
            "rlimits": limits.rlimits(command.limits),
            "isolation": orders["isolation"] and orders["isolation"]["plan"],
        }
        command.started = command.streams.last_output = time.monotonic()
        command.tree.include_below(os.getpid())
        self._spawn(message)
        if command.slot.init_pipe is None:
            limits.set_process_limit(command.tree, command.limits)
        else:
            command.is_starting = True
            command.loop.watch(command.slot.init_pipe, command.read_init)
        if command.slot.orders is not None:
            command.loop.watch(command.slot.orders.fileno(), self._on_child)

    def _spawn(self, message: dict[str, Any]) -> None:
        """Spawn it; while no process can be created, retry and obey requests meanwhile."""
        command = self._command
        deadline = time.monotonic() + SPAWN_PATIENCE
        while True:
            try:
                command.slot.spawn(message, self._stdio, self._run_dir.directory)
            except BlockingIOError:
                if self._spare.asked_to_end:
                    command.cancel("its keeper was asked to end")
                if command.stop is not None or time.monotonic() > deadline:
                    raise
            else:
                return
            self._report_no_process()
            command.loop.turn(SPAWN_RETRY)

    def _report_no_process(self) -> None:
        """No process can be created for the command: the server may end idle ones."""
        self._command.control.broadcast({"event": "no_process"})

    def _on_child(self, fd: int, _: int) -> None:
        """The orders socket closes after exec, or has the error if exec failed; NO_PROCESS until there is a child."""
        command, orders_socket = self._command, self._command.slot.orders
        assert orders_socket is not None
        try:
            data = orders_socket.recv(1 << 16)
        except OSError:  # the child ended before it read its orders; if by a signal, the signal is the exit reason
            data, self._never_started = b"", True
        if data and not (said := data.lstrip(NO_PROCESS)):
            self._report_no_process()
            return
        if data:
            command.spawn_error = said.decode() + _hidden(command.orders)
        if command.slot.init_pipe is not None:  # init has left the command's groups
            limits.set_process_limit(command.tree, command.limits)
            self._send_early_signals()
        command.loop.unwatch(fd)
        orders_socket.close()
        if command.streams.terminal is not None:
            os.close(self._follower)

    def _send_early_signals(self) -> None:
        command = self._command
        command.is_starting = False
        for number in command.early_signals:
            try:
                signal_member(command.tree, command.leader(), number)
            except OSError:  # it has ended already
                return

    # -- running --------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        command = self._command
        if command.leader_ended is None:
            return False
        if command.ladder.gave_up:
            return True
        if command.ladder.state == "hook":
            return False
        if not command.tree.empty() or command.streams.blocked:
            return False
        return command.streams.done or self._pipes_held_outside()

    def _pipes_held_outside(self) -> bool:
        """Whether only a process outside the (empty) tree still has a pipe open, and wrote nothing for a while."""
        streams = self._command.streams
        heard = streams.last_output
        patience = _SLOW_CLIENT_SECONDS if streams.awaits_client else _HELD_PIPE_SECONDS
        if time.monotonic() - max(self._command.leader_ended or 0.0, heard) <= patience:
            return False
        self._handle_pending_events()
        return streams.done or streams.last_output == heard

    def _handle_pending_events(self) -> None:
        """Handle events that are already pending.

        A keeper that was stopped or got no CPU may see that a limit has passed before it sees what arrived in time:
        output, the command's own end, a client.
        """
        for _ in range(_PENDING_TURNS):
            self._command.loop.turn(0.0)

    def _patience(self, now: float) -> float:
        command = self._command
        until = now + _MAX_WAIT
        if command.ladder.deadline is not None:
            until = min(until, command.ladder.deadline)
        if command.streams.blocked:
            until = min(until, now + DISK_RETRY)
        if command.leader_ended is not None:
            until = min(until, now + 0.01)
        if self._start_event:
            until = min(until, self._start_event_at)
        until = min(until, command.streams.flush_at)
        if command.leader_ended is None and not command.ladder.active:
            until = min(until, self._deadlines.nearest(now))
        return max(until - now, 0.0)

    def _check_limits(self, now: float) -> None:
        command = self._command
        if command.streams.blocked:
            command.streams.retry_disk(now, patient=command.stop is None)
        elif now >= command.streams.flush_at:
            command.streams.flush(idle=True)
        if self._deadlines.passed(now) is not None:
            self._handle_pending_events()
            if (stop := self._deadlines.passed(now)) is not None:
                command.end(stop)

    # -- ending ---------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        command = self._command
        command.reap_init()
        command.streams.flush(idle=False)
        if self._never_started and command.stop is None and not os.WIFSIGNALED(command.status or 0):
            command.spawn_error = "its process ended before it could execute the program"
        exit_record = record.assemble(command, time.monotonic())
        data = frames.to_json(exit_record)
        self._publish(data)
        self._send_exit(data)
        command.slot.release(reusable=not command.ladder.active and "counters" not in exit_record["evidence"])
        command.reap()
        deadline = time.monotonic() + 1.0
        while not command.control.all_sent and time.monotonic() < deadline:
            command.loop.turn(0.1)
        command.control.close(keep=self._launcher)
        if command.stdin is not None:
            command.stdin.discard()
        command.streams.close()
        for pipe in (command.slot.status_pipe, command.slot.init_pipe):
            if pipe is not None:
                os.close(pipe)
        command.slot.init_pipe = None
        command.loop.close()

    def _send_exit(self, exit_record: bytes) -> None:
        """Send the exit event, to the launcher last: it may send the next orders at once."""
        control = self._command.control
        for client in list(control.clients.values()):
            if client is not self._launcher:
                control.send_bytes(client, _exit_event(exit_record, again=False))
        ends = self._last or self._spare.asked_to_end or self._command.ladder.gave_up
        event = _exit_event(exit_record, again=not ends and control.all_sent)
        started, self._start_event = self._start_event, b""
        control.answer_bytes(self._launcher, started + event)

    def _publish(self, exit_record: bytes) -> None:
        """Write the exit record; on a full disk, retry until it succeeds."""
        while True:
            try:
                self._command.output.end()
                self._run_dir.publish(exit_record)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                    return  # the directory is gone: a server has stored the record from the socket
                self._last = True  # the launcher gets the end now, and this keeper serves no other command
                self._send_exit(exit_record)
                self._command.loop.turn(DISK_RETRY)
            else:
                return


def _hidden(orders: dict[str, Any]) -> str:
    """What to do when the program is on the machine, but not in the command's view."""
    program = orders["argv"][0]
    if orders["isolation"] is None or orders["isolation"]["plan"] is None or not os.path.isabs(program):
        return ""
    if not os.path.exists(program):
        return ""
    return (
        f"; isolated commands do not see {os.path.dirname(program)!r}: add it to isolation.read in the settings, "
        "or run with --isolation none"
    )


def _exit_event(exit_record: bytes, *, again: bool) -> bytes:
    """``again``: the keeper will serve another command."""
    return frames.encode(
        frames.JSON, b'{"event":"exit","again":%s,"record":%s}' % (b"true" if again else b"false", exit_record)
    )
