"""``debug-server run``: one command, here and now, in this directory or in a workspace of a commit and a patch."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
from dataclasses import dataclass
from types import FrameType

from debug_server.errors import ConfigurationError, DebugServerError, InvalidInputError, UnmetRequirementError
from debug_server.model import CommandSpec, EnvironmentPlan, Limits, without_credentials
from debug_server.service.foreground import ForegroundRun, ForegroundRuns, RunReply, RunRequest, current_folder
from debug_server.surfaces.cli.outcome import BROKEN_PIPE, CANCELLED, FAILURE, WRONG_USE, exit_status, summary
from debug_server.surfaces.cli.output import without_controls
from debug_server.surfaces.cli.parts import OpenLocal
from debug_server.surfaces.cli.passthrough import Printer, forwarded_stdin, stdin_may_have_input, terminal_size
from debug_server.surfaces.cli.stages import stage, timed_stage
from debug_server.surfaces.cli.standard_streams import write_stderr
from debug_server.surfaces.cli.variable_options import given_variables

# The command line is correct, but the configuration or this machine does not fit it.
_NOT_USAGE_ERRORS = (ConfigurationError, UnmetRequirementError)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceOptions:
    """The options of the workspace."""

    repository: str
    commit: str
    patch: bytes | None
    environment: EnvironmentPlan | None
    artifacts: list[str]


def command_spec(
    argv: list[str], *, limits: Limits, require: list[str], variables: list[str], secrets: list[str], tty: bool
) -> CommandSpec:
    """The command of a command line; ``variables`` and ``secrets`` are the values of --env and --secret."""
    return CommandSpec(
        argv,
        given_variables(variables, secrets),
        log_name="run",
        limits=limits,
        require=require,
        secrets=secrets,
        tty=tty,
        stdin=tty or stdin_may_have_input(),
    )


def run_here(foreground: ForegroundRuns, command: CommandSpec, *, quiet: bool) -> int:
    """Run in the current directory; returns the exit status."""
    with foreground.in_directory(RunRequest(command=command), current_folder()) as run:
        return _run(run, command, quiet=quiet)


def run_in_workspace(
    foreground: ForegroundRuns, command: CommandSpec, checkout: WorkspaceOptions, *, quiet: bool
) -> int:
    """Run in a new workspace of a commit and a patch, which is released at the end; returns the exit status."""
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
            )
            run = stack.enter_context(opened)
            done((run.session.commit_sha or "")[:12])
        if checkout.environment is None and checkout.patch is None:  # otherwise the log shows it
            stage("run", shlex.join(command.argv))
        return _run(run, command, system=True, artifacts=checkout.artifacts, quiet=quiet)


def _run(
    run: ForegroundRun, command: CommandSpec, *, quiet: bool, system: bool = False, artifacts: list[str] | None = None
) -> int:
    """Run and report; with ``system`` the log's stream ``system`` is printed too."""
    printer = Printer(system=system, on_broken=lambda: run.cancel("its output can no longer be written"))
    stdin = forwarded_stdin(run.connect, tty_mode=command.tty) if command.stdin else contextlib.nullcontext()
    try:
        with stdin:
            reply = run.run(observers=[printer], terminal_size=terminal_size())
    except KeyboardInterrupt:
        reply = run.interrupted_reply()
    if reply.error is not None:
        return _report_failure(run, reply, printer)
    if printer.broken is not None:
        return _output_failed(printer.broken)
    if artifacts and reply.command_id is not None:
        _copy_artifacts(run, artifacts, reply.command_id)
    if reply.exit is None:
        return FAILURE
    if not quiet:
        write_stderr(summary(reply.exit, reply.log_path, run.session.id))
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
    open_local: OpenLocal, command: CommandSpec, checkout: WorkspaceOptions | None, *, quiet: bool
) -> int:
    """Run; SIGTERM and a closed terminal act like Ctrl-C. An error is printed as one line; returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        with open_local() as local:
            if checkout is None:
                return run_here(local.foreground, command, quiet=quiet)
            return run_in_workspace(local.foreground, command, checkout, quiet=quiet)
    except DebugServerError as error:
        return report(error)


def report(error: DebugServerError) -> int:
    """Print an error as one line; returns the exit status: 2 if the command line is wrong, else 125."""
    write_stderr(without_controls(f"debug-server: {error}"))
    is_usage_error = isinstance(error, InvalidInputError) and not isinstance(error, _NOT_USAGE_ERRORS)
    return WRONG_USE if is_usage_error else FAILURE
