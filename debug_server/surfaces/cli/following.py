"""Follows commands that were just started: prints their output and end, and cancels them on Ctrl-C."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import FrameType

from debug_server.client import calls
from debug_server.messages import CommandReply
from debug_server.model import ExitRecord
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.found_commands import waiting_text
from debug_server.surfaces.cli.log_lines import Log, RawLog, json_log
from debug_server.surfaces.cli.outcome import FAILURE, exit_status, summary
from debug_server.surfaces.cli.output import Output, print_notice

_WAIT_SECONDS = 30.0
_MIN_WAIT_SECONDS = 0.001


def run_and_follow(
    backend: Backend,
    output: Output,
    start: Callable[[], Sequence[CommandReply]],
    attach: Callable[[CommandReply], AbstractContextManager[None]] = lambda _: contextlib.nullcontext(),
) -> int:
    """Start commands, then print their output; returns the first exit status that is not 0.

    ``attach`` is for the time in which the output of a command is printed.
    """
    log: Log = json_log() if output.as_json else RawLog()
    commands: list[CommandReply] = []
    statuses: list[int] = []
    try:
        with sigterm_as_sigint():
            _start(start, commands)
            for command in commands:
                tell_what_it_waits_for(command)
                with attach(command):
                    for piece in backend.follow_log(command.id):
                        log.write(piece)
                log.finish()
                statuses.append(report_end(output, wait_for(backend, command.id), log))
    except KeyboardInterrupt:
        return _cancel(backend, output, commands[len(statuses) :])
    return next((status for status in statuses if status), 0)


def _start(start: Callable[[], Sequence[CommandReply]], commands: list[CommandReply]) -> None:
    """Start the commands and add them to ``commands``.

    Ctrl-C takes effect after the reply, which has the ids to cancel; a second Ctrl-C takes effect at once.
    """
    received: list[int] = []

    def on_sigint(number: int, _: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    previous = signal.signal(signal.SIGINT, on_sigint)
    try:
        commands.extend(start())
    finally:
        signal.signal(signal.SIGINT, previous)
    if received:
        raise KeyboardInterrupt


def wait_for(backend: Backend, command_id: int, seconds: float | None = None) -> CommandReply:
    """The command once it has ended, or as it is after ``seconds``."""
    deadline = time.monotonic() + (math.inf if seconds is None else seconds)
    while True:
        left = min(_WAIT_SECONDS, max(_MIN_WAIT_SECONDS, deadline - time.monotonic()))
        command = backend.send(calls.wait_command(command_id, seconds=left))
        if command.ended or time.monotonic() >= deadline:
            return command


def submitted_text(command: CommandReply) -> str:
    """The state of a command that was just submitted."""
    waits = f": it {waiting_text(command)}" if command.waits_for else ""
    return f"command {command.id} {state_of(command)}{waits}"


def state_of(command: CommandReply) -> str:
    """The state of a command as a verb, such as ``is running`` or ``has failed``."""
    return f"{'has' if command.status in ('succeeded', 'failed') else 'is'} {command.status}"


def tell_what_it_waits_for(command: CommandReply) -> None:
    """Say for what a waiting command waits."""
    if command.status == "pending" and command.waits_for:
        print_notice(f"command {command.id} {waiting_text(command)}")


def status_of(command: CommandReply) -> int:
    """The exit status for an ended command."""
    return exit_status(ExitRecord.from_json(command.exit)) if command.exit is not None else FAILURE


def report_end(output: Output, command: CommandReply, log: Log) -> int:
    """Report how a command ended, on stderr, without a sentence that the ``log`` has shown; returns the exit status."""
    if output.as_json:
        output.record(command)
    elif command.exit is not None:
        record = ExitRecord.from_json(command.exit)
        # Compare the first line only: the others are the output of a build tool, which the log has elsewhere.
        shown = isinstance(log, RawLog) and log.has_shown((record.message or "").partition("\n")[0])
        text = summary(record, None, command.session_id, command_id=command.id, with_sentence=not shown)
        print_notice(text.removeprefix("[debug-server] "))
    return status_of(command)


def _cancel(backend: Backend, output: Output, commands: Sequence[CommandReply]) -> int:
    """Cancel the commands, the last one first, so that no waiting command starts when another ends."""
    for command in reversed(commands):
        ended = backend.send(calls.cancel_command(command.id))
        state = "was cancelled" if ended.status == "cancelled" else state_of(ended)
        print_notice(f"command {command.id} {state}")
        if output.as_json:
            output.record(ended)
    return 130


@contextlib.contextmanager
def sigterm_as_sigint() -> Iterator[None]:
    """Within the block SIGTERM ends the program as Ctrl-C does."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(_: int, __: FrameType | None) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a background job of a shell that is not interactive
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
