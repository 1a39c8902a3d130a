"""``debug-server run``: one command, here and now, in this directory or in a workspace of a commit and a patch."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

from debug_server.engine import SessionWorkspace
from debug_server.engine.attempts import attempt
from debug_server.engine.sessions import SESSION_END
from debug_server.errors import (
    CommandExecutionError,
    DebugServerError,
    EnvironmentBuildError,
    PatchApplicationError,
)
from debug_server.model import EnvironmentPlan, Limits, Session, SessionPlan, SessionStatus
from debug_server.runner.spec import CommandSpec
from debug_server.runner.worker import WorkerSupervisor
from debug_server.surfaces.cli.outcome import BROKEN_PIPE, CANCELLED, FAILURE, exit_status, summary
from debug_server.surfaces.cli.parts import LocalParts, OpenLocal
from debug_server.surfaces.cli.passthrough import FOR_EVER, Printer, forwarded_stdin, terminal_size, wants_stdin
from debug_server.surfaces.cli.secret_options import secret_variables
from debug_server.surfaces.cli.stages import say, stage, timed_stage
from debug_server.surfaces.cli.words import patch_bytes
from debug_server.worktrees import SessionPatch, WorktreeLease
from debug_server.worktrees.artifact_files import check_patterns
from debug_server.worktrees.git import without_credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line said of the command."""

    argv: list[str]
    limits: Limits
    require: list[str]
    tty: bool
    quiet: bool
    secrets: list[str] = field(default_factory=list)  # names of our variables


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutOptions:
    """What the command line said of the workspace."""

    repository: str
    commit: str
    patch: Path | None
    environment: EnvironmentPlan | None
    artifacts: list[str]


def run_here(local: LocalParts, options: RunOptions) -> int:
    """Run in the current directory with our streams; returns the exit status."""
    spec, lease = _spec(options), SessionWorkspace(path=Path.cwd())
    local.bare_supervisor.check(spec, lease)  # a request that is refused leaves no session
    session = local.store.sessions.create(plan=SessionPlan(directory=str(lease.path)))
    stdin = _stdin(local, spec, session)
    printer = Printer(on_broken=lambda: _end_all(local.bare_supervisor))
    try:
        with stdin:
            result = local.bare_supervisor.run_command(
                session.id,
                spec,
                lease,
                stream_observers=[printer],
                terminal_size=terminal_size(),
                observer_seconds=FOR_EVER,
            )
    except (CommandExecutionError, KeyboardInterrupt):
        return _tell_end(local, session, printer)
    finally:
        _close_over(local, session)
    if printer.broken is not None:
        return _unread(printer.broken)
    if not options.quiet:
        say(summary(result.exit, result.log_path, session.id))
    return exit_status(result.exit)


def _close_over(local: LocalParts, session: Session) -> None:
    """The session of a command that has ended, or has never begun, is over, too."""
    commands = local.store.commands.in_session(session.id)
    if all(command.status.terminal for command in commands):
        ended = SESSION_END[commands[-1].status] if commands else SessionStatus.CANCELLED
        local.store.sessions.set_status(session.id, ended)


def run_checkout(local: LocalParts, options: RunOptions, checkout: CheckoutOptions) -> int:
    """Run in a fresh workspace of a commit and a patch; the workspace is given back at the end."""
    patch = None if checkout.patch is None else SessionPatch(patch_bytes(checkout.patch))
    check_patterns(checkout.artifacts)
    spec = _spec(options)
    supervisor = local.supervisor if checkout.environment is not None else local.bare_supervisor
    supervisor.check(spec, SessionWorkspace(path=Path.cwd()))
    _settle(local, supervisor)
    session = _open(local, checkout, supervisor.owner)
    stdin = _stdin(local, spec, session)
    status = SessionStatus.FAILED
    try:
        with local.sessions.lease(session).kept_alive() as lease:
            code = _run_in(local, supervisor, session, spec, lease, stdin, patch, checkout, quiet=options.quiet)
            status = SessionStatus.COMPLETED if code == 0 else SessionStatus.FAILED
            return code
    finally:
        local.sessions.close(session, status=status)


def _settle(local: LocalParts, supervisor: WorkerSupervisor) -> None:
    """What killed processes left and what has ended since: its end, its files, its workspace."""
    for command in supervisor.settle_ended():
        attempt("settling_failed", partial(local.sessions.conclude, command), command_id=command.id)
    local.sessions.close_abandoned()


def _open(local: LocalParts, checkout: CheckoutOptions, process: str) -> Session:
    """A session that does not outlive this process: killed, the next one to look closes it."""
    with timed_stage("mirror", without_credentials(checkout.repository)) as done:
        repository = local.sessions.reach(checkout.repository)
        done(f"{repository.name} from {repository.remote_url}")
    with timed_stage("workspace", checkout.commit) as done:
        session = local.sessions.open(
            repository,
            commit=checkout.commit,
            owner=f"run-{os.getpid()}",
            plan=SessionPlan(environment=checkout.environment, process=process),
        )
        done((session.commit_sha or "")[:12])
    return session


def _run_in(
    local: LocalParts,
    supervisor: WorkerSupervisor,
    session: Session,
    spec: CommandSpec,
    lease: WorktreeLease,
    stdin: contextlib.AbstractContextManager[None],
    patch: SessionPatch | None,
    checkout: CheckoutOptions,
    *,
    quiet: bool,
) -> int:
    request = local.sessions.environment(session, lease.path)
    if request is None and patch is None:  # else its log says it
        stage("run", shlex.join(spec.argv))
    printer = Printer(system=True, on_broken=lambda: _end_all(supervisor))
    try:
        with stdin:
            result = supervisor.run_command(
                session.id,
                spec,
                lease,
                env_request=request,
                patch=patch,
                stream_observers=[printer],
                terminal_size=terminal_size(),
                observer_seconds=FOR_EVER,
                artifacts=checkout.artifacts,
            )
    except (CommandExecutionError, PatchApplicationError, EnvironmentBuildError, KeyboardInterrupt):
        return _tell_end(local, session, printer)
    if printer.broken is not None:
        return _unread(printer.broken)
    _collect(local, session, lease, checkout.artifacts, result.command_id)
    if not quiet:
        say(summary(result.exit, result.log_path, session.id))
    return exit_status(result.exit)


def _end_all(supervisor: WorkerSupervisor) -> None:
    """There is one command here, and nobody reads what it says."""
    supervisor.pipeline.cancel_all("nobody reads its output any more")


def _unread(error: OSError) -> int:
    if error.errno == errno.EPIPE:
        return BROKEN_PIPE
    say(f"debug-server: our own output cannot be written: {error.strerror}")
    return FAILURE


def _collect(local: LocalParts, session: Session, lease: WorktreeLease, patterns: list[str], command_id: int) -> None:
    if not patterns:
        return
    kept, refused = local.sessions.artifacts.keep(session, lease.path, patterns, command_id=command_id)
    for artifact in kept:
        stage("artifact", f"{artifact.name} ({artifact.kind.value}, {artifact.size} bytes) at {artifact.path}")
    for item in refused:
        stage("artifact", f"{item.name} was not kept: {item.reason}")
    if not kept and not refused:
        stage("artifact", f"nothing matches {', '.join(patterns)}")


def _spec(options: RunOptions) -> CommandSpec:
    feed = options.tty or wants_stdin()
    return CommandSpec(
        options.argv,
        secret_variables(options.secrets),
        log_name="run",
        limits=options.limits,
        require=options.require,
        secrets=options.secrets,
        tty=options.tty,
        stdin=feed,
    )


def _stdin(local: LocalParts, spec: CommandSpec, session: Session) -> contextlib.AbstractContextManager[None]:
    """How the command gets our stdin."""
    if not spec.stdin:
        return contextlib.nullcontext()
    return forwarded_stdin(local.store, local.settings.paths, session.id, tty_mode=spec.tty)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tell_end(local: LocalParts, session: Session, printer: Printer) -> int:
    """The end of a command that did not start, or that was interrupted, perhaps before there was a row of it.

    What its log said of it, and ``printer`` repeated, is not said again.
    """
    commands = local.store.commands.in_session(session.id)
    if not commands:
        return CANCELLED
    ended = commands[-1].exit
    if ended is None:
        return FAILURE
    log_path = commands[-1].log_path
    # Its first line is enough: what a build tool said stands above it, not in it.
    sentence = not printer.has_said((ended.message or "").partition("\n")[0])
    say(summary(ended, Path(log_path) if log_path else None, session.id, with_sentence=sentence))
    return exit_status(ended)


def run_command_line(open_local: OpenLocal, options: RunOptions, checkout: CheckoutOptions | None) -> int:
    """Errors of ours end with status 125 and one line; SIGTERM and a closed terminal do what Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        with open_local() as local:
            if checkout is None:
                return run_here(local, options)
            return run_checkout(local, options, checkout)
    except DebugServerError as error:
        say(f"debug-server: {error}")
        return FAILURE
