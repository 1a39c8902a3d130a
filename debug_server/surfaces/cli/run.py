"""``debug-server run``: one command, here and now, in this directory or in a workspace of a commit and a patch."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from debug_server.errors import ConfigurationError, DebugServerError, InvalidInputError, UnmetRequirementError
from debug_server.model import CommandSpec, EnvironmentPlan, Limits, LogChunk, status_for, without_credentials
from debug_server.model.isolation import Level, Network
from debug_server.surfaces.cli.outcome import BROKEN_PIPE, CANCELLED, FAILURE, WRONG_USE, exit_status, summary
from debug_server.surfaces.cli.output import error_line
from debug_server.surfaces.cli.parts import OpenLocal
from debug_server.surfaces.cli.passthrough import Printer, forwarded_stdin, stdin_may_have_input, terminal_size
from debug_server.surfaces.cli.stages import stage, timed_stage
from debug_server.surfaces.cli.standard_streams import write_stderr
from debug_server.surfaces.cli.variable_options import given_variables

if TYPE_CHECKING:
    from debug_server.service.foreground import ForegroundRun, ForegroundRuns, RunReply

# The command line is correct, but the configuration or this machine does not fit it.
_NOT_USAGE_ERRORS = (ConfigurationError, UnmetRequirementError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is printed beside the command's output."""

    quiet: bool = False  # not how it ended
    as_json: bool = False  # output as lines of JSON, and the end as the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceOptions:
    """The options of the workspace."""

    repository: str
    commit: str
    patch: bytes | None
    environment: EnvironmentPlan | None
    artifacts: list[str]


def command_spec(
    argv: list[str],
    *,
    limits: Limits,
    require: list[str],
    isolation: Level | None = None,
    network: Network | None = None,
    variables: list[str],
    secrets: list[str],
    tty: bool,
    stdin: bool = False,
    cwd: Path | None = None,
) -> CommandSpec:
    """The command of a command line; ``variables`` and ``secrets`` are the values of --env and --secret."""
    return CommandSpec(
        argv,
        given_variables(variables, secrets),
        cwd,
        log_name="run",
        limits=limits,
        require=require,
        isolation=isolation,
        network=network,
        secrets=secrets,
        tty=tty,
        stdin=stdin or tty or stdin_may_have_input(),
    )


def run_here(foreground: ForegroundRuns, command: CommandSpec, shown: Shown) -> int:
    """Run in the current directory, or in the one that the command names; returns the exit status."""
    from debug_server.service.foreground import RunRequest, current_folder  # loaded while the keepers start

    folder = current_folder()
    if command.cwd is not None:
        folder = folder / command.cwd
        if not folder.is_dir():
            raise InvalidInputError(f"--cwd {str(command.cwd)!r} is not a folder")
        folder, command = folder.resolve(), replace(command, cwd=None)
    with foreground.in_directory(RunRequest(command=command), folder) as run:
        return _run(run, command, shown)


def run_in_workspace(foreground: ForegroundRuns, command: CommandSpec, checkout: WorkspaceOptions, shown: Shown) -> int:
    """Run in a new workspace of a commit and a patch, which is released at the end; returns the exit status."""
    from debug_server.service.foreground import RunRequest

    request = RunRequest(command=command, patch=checkout.patch, artifacts=checkout.artifacts)
    foreground.check(request)
    foreground.recover()
    with timed_stage("mirror", without_credentials(checkout.repository)) as done:
        repository = foreground.register_reachable(checkout.repository)
        done(f"{repository.name} from {repository.remote_url}")
    with contextlib.ExitStack() as stack:
        with timed_stage("workspace", checkout.commit) as done:
            opened = foreground.in_workspace(
                request,
                repository,
                commit=checkout.commit,
                owner=f"run-{os.getpid()}",
                environment=checkout.environment,
                on_wait=lambda why: stage("workspace", f"waits for one: {why}"),
            )
            run = stack.enter_context(opened)
            done((run.session.commit_sha or "")[:12])
        if checkout.environment is None and checkout.patch is None:  # otherwise the log shows it
            stage("run", shlex.join(command.argv))
        return _run(run, command, shown, system=True, artifacts=checkout.artifacts)


def _run(
    run: ForegroundRun,
    command: CommandSpec,
    shown: Shown,
    *,
    system: bool = False,
    artifacts: list[str] | None = None,
) -> int:
    """Run and report; with ``system`` the log's stream ``system`` is printed too."""
    lines = _JsonLines(run) if shown.as_json else None
    printer = Printer(system=system, on_broken=lambda: run.cancel("its output can no longer be written"), lines=lines)
    stdin = forwarded_stdin(run.connect, tty_mode=command.tty) if command.stdin else contextlib.nullcontext()
    try:
        with stdin:
            reply = run.run(observers=[printer], terminal_size=terminal_size())
    except KeyboardInterrupt:
        reply = run.interrupted_reply()
    if lines is not None and printer.broken is None:
        return lines.finish(reply)
    if reply.error is not None:
        return _report_failure(run, reply, printer)
    if printer.broken is not None:
        return _output_failed(printer.broken)
    if artifacts and reply.command_id is not None:
        _copy_artifacts(run, artifacts, reply.command_id)
    if reply.exit is None:
        return FAILURE
    if not shown.quiet:
        write_stderr(summary(reply.exit, reply.log_path, run.session.id))
    return exit_status(reply.exit)


class _JsonLines:
    """Prints the output as lines of JSON, and the end of the command as the last one."""

    def __init__(self, run: ForegroundRun) -> None:
        from debug_server.surfaces.cli.log_lines import json_log

        self._run = run
        self._command_id: int | None = None
        self._log = json_log()

    def __call__(self, chunk: LogChunk) -> None:
        from debug_server.messages import LogPiece

        if self._command_id is None:
            self._command_id = self._run.command_id()
        self._log.write(
            LogPiece(
                offset=chunk.offset,
                stream=chunk.stream,
                data=chunk.data,
                timestamp=chunk.timestamp,
                command_id=self._command_id,
            )
        )

    def finish(self, reply: RunReply) -> int:
        """Print the end; returns the exit status."""
        from debug_server.surfaces.cli.output import Output, plain

        self._log.finish()
        facts = {
            "id": reply.command_id,
            "session_id": self._run.session.id,
            "status": None if reply.exit is None else status_for(reply.exit.reason).value,
            "exit": plain(reply.exit),
            "log_path": None if reply.log_path is None else str(reply.log_path),
            "error": reply.error,
        }
        Output(as_json=True).json(facts)
        if reply.exit is None:
            return CANCELLED if reply.command_id is None else FAILURE
        return exit_status(reply.exit)


def _output_failed(error: OSError) -> int:
    if error.errno == errno.EPIPE:
        return BROKEN_PIPE
    write_stderr(f"debug-server: cannot write to stdout: {error.strerror}")
    return FAILURE


def _copy_artifacts(run: ForegroundRun, patterns: list[str], command_id: int) -> None:
    kept, refused = run.keep_artifacts(command_id)
    for artifact in kept:
        stage("artifact", f"{artifact.name} ({artifact.kind.value}, {artifact.size} bytes) at {artifact.path}")
    for item in refused:
        stage("artifact", f"{item.name} was not kept: {item.reason}")
    if not kept and not refused:
        stage("artifact", f"nothing matches {', '.join(patterns)}")


def _report_failure(run: ForegroundRun, reply: RunReply, printer: Printer) -> int:
    """Report a command that did not start or was interrupted, perhaps before its row was added.

    What ``printer`` has printed from the log is not repeated.
    """
    if reply.command_id is None:
        return CANCELLED
    if reply.exit is None:
        return FAILURE
    # Compare the first line only: the others are the output of a build tool, which the log has elsewhere.
    sentence = not printer.has_printed((reply.exit.message or "").partition("\n")[0])
    write_stderr(summary(reply.exit, reply.log_path, run.session.id, with_sentence=sentence))
    return exit_status(reply.exit)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def run_command_line(
    open_local: OpenLocal, command: CommandSpec, checkout: WorkspaceOptions | None, shown: Shown
) -> int:
    """Run; SIGTERM and a closed terminal act like Ctrl-C. An error is printed as one line; returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        with open_local() as local:
            local.start_keeper()
            if checkout is None:
                return run_here(local.foreground, command, shown)
            return run_in_workspace(local.foreground, command, checkout, shown)
    except DebugServerError as error:
        return report(error, as_json=shown.as_json)


def report(error: DebugServerError, *, as_json: bool) -> int:
    """Print an error as one line; returns the exit status: 2 if the command line is wrong, else 125."""
    write_stderr(error_line(error, as_json=as_json))
    is_usage_error = isinstance(error, InvalidInputError) and not isinstance(error, _NOT_USAGE_ERRORS)
    return WRONG_USE if is_usage_error else FAILURE
