"""``debug-server run``: one command, here and now."""

from __future__ import annotations

import contextlib
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from debug_server.engine import SessionWorkspace
from debug_server.errors import CommandExecutionError, DebugServerError
from debug_server.model import Command, Limits
from debug_server.runner.spec import CommandSpec
from debug_server.surfaces.cli.outcome import FAILURE, exit_status, summary
from debug_server.surfaces.cli.parts import LocalParts, OpenLocal
from debug_server.surfaces.cli.passthrough import Printer, forwarded_stdin, terminal_size, wants_stdin


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line said."""

    argv: list[str]
    limits: Limits
    require: list[str]
    tty: bool
    quiet: bool


def run_here(local: LocalParts, options: RunOptions) -> int:
    """Run in the current directory with our streams; returns the exit status."""
    feed = options.tty or wants_stdin()
    spec = CommandSpec(
        options.argv, log_name="run", limits=options.limits, require=options.require, tty=options.tty, stdin=feed
    )
    session = local.store.create_session(metadata={"workspace": str(Path.cwd())})
    stdin = (
        forwarded_stdin(local.store, local.settings.paths, session.id, tty_mode=options.tty)
        if feed
        else contextlib.nullcontext()
    )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with stdin:
            result = local.bare_supervisor.run_command(
                session.id,
                spec,
                SessionWorkspace(path=Path.cwd()),
                stream_observers=[Printer()],
                terminal_size=terminal_size(),
            )
    except (CommandExecutionError, KeyboardInterrupt):
        return _tell_row(local.store.list_commands(session.id)[-1])
    if not options.quiet:
        _tell(summary(result.exit, result.log_path))
    return exit_status(result.exit)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tell_row(command: Command) -> int:
    """The end of a command that did not start, or that was interrupted."""
    if command.exit is None:
        return FAILURE
    _tell(summary(command.exit, Path(command.log_path) if command.log_path else None))
    return exit_status(command.exit)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def run_command_line(open_local: OpenLocal, options: RunOptions) -> int:
    """Errors of ours end with status 125 and one line."""
    try:
        with open_local() as local:
            return run_here(local, options)
    except DebugServerError as error:
        _tell(f"debug-server: {error}")
        return FAILURE
