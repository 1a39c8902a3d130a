"""The way of one claimed command: patch, environment, log, keeper, exit record, terminal state."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from debug_server.errors import (
    CommandExecutionError,
    DebugServerError,
    EnvironmentBuildError,
    InvalidInputError,
    KeeperError,
    LeaseLostError,
    PatchApplicationError,
    StoreUnavailableError,
)
from debug_server.model import Command, ExitReason, ExitRecord, check_name, status_for
from debug_server.ports import CommandStore, Lease, Telemetry
from debug_server.runner import child_environment
from debug_server.runner.launch import LaunchOrder, RunningCommand, launch
from debug_server.runner.launcher import KeeperPool
from debug_server.runner.limits import plan_limits
from debug_server.runner.log_format import index_path
from debug_server.runner.log_listener import ChunkCallback, observe_log
from debug_server.runner.log_reader import seal_log
from debug_server.runner.ownership import owner_file
from debug_server.runner.preparation import Preparation, StageLog
from debug_server.runner.settings import RunnerPaths
from debug_server.runner.spec import CommandResult, CommandSpec
from debug_server.worktrees.patches import SessionPatch

if TYPE_CHECKING:
    from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest

_LOG = logging.getLogger(__name__)
OBSERVER_SECONDS = 10.0
_STORE_SECONDS, _STORE_RETRY = 60.0, 0.25
_TERMINAL_SIZE = {"rows": 24, "cols": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One claimed command and everything around it."""

    command: Command
    spec: CommandSpec
    lease: Lease
    env_request: EnvironmentRequest | None = None
    patch: SessionPatch | None = None
    observers: Sequence[ChunkCallback] = ()
    observer_seconds: float = OBSERVER_SECONDS  # how long after the end a slow one is waited for
    terminal_size: Mapping[str, int] | None = None
    cwd: Path | None = None  # checked already
    on_start: Callable[[RunningCommand], None] | None = None  # called once the row says that it runs


class Pipeline:
    """Runs claimed commands, each in the thread that calls; knows which ones run now."""

    def __init__(
        self,
        *,
        store: CommandStore,
        paths: RunnerPaths,
        pool: KeeperPool,
        environment_manager: EnvironmentManager | None,
        base_env: Mapping[str, str] | None = None,
        kill_grace: float = 1.0,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._store = store
        self._paths = paths
        self._pool = pool
        self._base_env = dict(base_env) if base_env is not None else child_environment.default_base(os.environ)
        self._preparation = Preparation(
            environments=environment_manager, patches_dir=paths.patches_dir, base_env=self._base_env
        )
        self._kill_grace = kill_grace
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._running: dict[int, RunningCommand] = {}
        self._log_dirs: set[Path] = set()

    def run(self, job: Job) -> CommandResult:
        """From a claimed command to its terminal state.

        PatchApplicationError, EnvironmentBuildError and CommandExecutionError are raised after the row has ended.
        """
        log_path = self.log_path(job.command)
        began = time.monotonic()
        # The row has its end before the stack is unwound: a slow observer must not keep a command running.
        with ExitStack() as stack:
            try:
                self._make_room(log_path)
                stack.enter_context(self._span(job.command))
                running = self._start(job, log_path, stack)
                record, interrupted = self._wait(job.command, running)
            except OSError as error:
                refusal = CommandExecutionError(f"command {job.command.id} could not be started: {error}")
                self._fail(job.command, log_path, refusal)
                raise refusal from error
            except (DebugServerError, KeyboardInterrupt) as error:
                self._fail(job.command, log_path, error)
                raise
            result = self._finish(job.command, record, log_path)
            running.clean()
            if self._telemetry is not None:
                overhead = time.monotonic() - began - record.wall_seconds
                self._telemetry.observe("debug_server_command_overhead_seconds", overhead)
        if interrupted:
            raise KeyboardInterrupt
        if record.reason is ExitReason.SPAWN_FAILED:
            raise CommandExecutionError(f"command {job.command.id} could not be started: {record.message}")
        return result

    def refuse(self, command: Command, error: DebugServerError) -> None:
        """End a claimed command that cannot even be prepared."""
        log_path = self.log_path(command)
        with contextlib.suppress(OSError):  # the row says it even where no log can be written
            self._make_room(log_path)
        self._fail(command, log_path, error)

    def follow_adopted(self, command: Command, running: RunningCommand, log_path: Path) -> CommandResult:
        """Wait for a command that another process had started."""
        with self._registered(command.id, running):
            record = running.wait()
        result = self._finish(command, record, log_path)
        running.clean()
        return result

    def cancel(self, command_id: int, message: str = "cancelled on request") -> bool:
        """Ask for the end of a command that this process runs; False when it does not."""
        with self._lock:
            running = self._running.get(command_id)
        if running is None:
            return False
        running.cancel(message)
        return True

    def close(self) -> None:
        """Let what was begun in the background come to its end."""
        self._preparation.close()

    def detach_all(self) -> None:
        """Let go of everything that runs here; it carries on and can be adopted."""
        with self._lock:
            for running in self._running.values():
                running.detach()

    @property
    def running(self) -> list[int]:
        """The commands under way here."""
        with self._lock:
            return sorted(self._running)

    def log_path(self, command: Command) -> Path:
        """Where a command's log lies."""
        folder = self._paths.logs_dir / check_name(str(command.session_id), what="session")
        return folder / f"{command.log_name}-{command.id}.log"

    def _make_room(self, path: Path) -> None:
        """For a new log at ``path``."""
        if path.parent not in self._log_dirs:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._log_dirs.add(path.parent)
        if path.exists() and not _unused(path):
            _set_aside(path)

    def plan(self, job: Job) -> LaunchOrder:
        """What would be started, with nothing prepared: the limits, the environment, the places."""
        return self._order(job, self.log_path(job.command), {})

    # -- stages ---------------------------------------------------------------------------------------------------

    def _start(self, job: Job, log_path: Path, stack: ExitStack) -> RunningCommand:
        log = StageLog(log_path)
        stack.callback(log.close)
        if job.observers:
            observed = observe_log(log_path, job.observers)
            stack.callback(observed.finish, job.observer_seconds)
        workspace = Path(job.lease.path)
        if job.patch is not None:
            self._preparation.patch(workspace, job.patch, log)
        environment, variables = self._preparation.environment(job.env_request, job.lease, log, stack)
        order = self._order(job, log_path, variables)
        if log.begun:
            log.write(f"[debug-server] run: {shlex.join(job.spec.argv)}\n")
        log.close()
        try:
            running = launch(self._pool, self._paths.keepers_dir, order)
        except KeeperError as error:
            raise CommandExecutionError(f"command {job.command.id} could not be started: {error}") from error
        if environment is not None:  # the keeper may outlive us, and needs it until its end
            environment.assign(running.handle["keeper"]["pid"])
        try:
            self._record_start(job.command, running, log_path)
            if job.on_start is not None:
                job.on_start(running)
        except BaseException:
            # Nobody will know of it: end it. Its row is another owner's by now, or the store is gone.
            running.cancel("its start could not be recorded")
            running.wait()
            running.clean()
            raise
        return running

    def _record_start(self, command: Command, running: RunningCommand, log_path: Path) -> None:
        row = self._store.start_command(
            command.id,
            attempt=command.attempt,
            owner=command.owner or "",
            handle=running.handle,
            log_path=str(log_path),
        )
        if row.cancel_requested:
            running.cancel()
        self._count("debug_server_commands_started_total")

    def _order(self, job: Job, log_path: Path, environment: Mapping[str, str]) -> LaunchOrder:
        spec, limits = job.spec, job.spec.bounds
        return LaunchOrder(
            command_id=job.command.id,
            attempt=job.command.attempt,
            owner=owner_file(self._paths.owners_dir, job.command.owner or ""),
            argv=[*spec.wrapper, *spec.argv],
            env=child_environment.build(
                self._base_env, environment=environment, overrides=spec.env or {}, limits=limits
            ),
            cwd=job.cwd or resolve_cwd(Path(job.lease.path), spec.cwd),
            limits=plan_limits(limits, self._pool.capabilities, spec.require),
            log_path=log_path.absolute(),
            kill_grace=self._kill_grace,
            tty=(job.terminal_size or _TERMINAL_SIZE) if spec.tty else None,
            stdin=spec.stdin,
            stdin_text=spec.stdin_text,
            relay=spec.relay,
            orphan_seconds=spec.orphan_seconds,
            pre_kill=spec.pre_kill,
        )

    # -- the end --------------------------------------------------------------------------------------------------

    def _wait(self, command: Command, running: RunningCommand) -> tuple[ExitRecord, bool]:
        """The record, and whether the caller was interrupted meanwhile."""
        with self._registered(command.id, running):
            try:
                return running.wait(), False
            except KeyboardInterrupt:
                running.cancel("interrupted")
                return running.wait(), True

    @contextmanager
    def _registered(self, command_id: int, running: RunningCommand) -> Iterator[None]:
        with self._lock:
            self._running[command_id] = running
        try:
            yield
        finally:
            with self._lock:
                del self._running[command_id]

    def _finish(self, command: Command, record: ExitRecord, log_path: Path) -> CommandResult:
        self._record_end(command, record, log_path)
        self._count("debug_server_commands_ended_total", reason=record.reason.value)
        if self._telemetry is not None:
            self._telemetry.observe("debug_server_command_seconds", record.wall_seconds)
            self._telemetry.count("debug_server_log_bytes_total", record.stdout_bytes + record.stderr_bytes)
        fields = {"command_id": command.id, "reason": record.reason.value, "seconds": record.wall_seconds}
        _LOG.info("command_finished", extra=fields)
        return CommandResult(command.id, status_for(record.reason), record.exit_code, log_path, exit=record)

    def _record_end(self, command: Command, record: ExitRecord, log_path: Path) -> None:
        """A store that is full or locked is tried again: the record is on disk and the row must have its end."""
        deadline = time.monotonic() + _STORE_SECONDS
        while True:
            try:
                self._store.finish_command(
                    command.id,
                    attempt=command.attempt,
                    owner=command.owner or "",
                    record=record,
                    log_path=str(log_path) if log_path.exists() else None,
                )
            except StoreUnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_STORE_RETRY)
            else:
                return

    def _fail(self, command: Command, log_path: Path, error: DebugServerError | KeyboardInterrupt) -> None:
        """End the row of a command that never started, with the error's words in its log."""
        log = StageLog(log_path)
        with contextlib.suppress(OSError):  # a full disk: the row still says it
            log.write(f"[debug-server] {_reason(error).value}: {error or 'interrupted'}\n")
            log.close()
            seal_log(log_path)
        self._finish(command, ExitRecord(reason=_reason(error), message=str(error) or "interrupted"), log_path)

    def _span(self, command: Command) -> AbstractContextManager[None]:
        if self._telemetry is None:
            return contextlib.nullcontext()
        return self._telemetry.span("command", command_id=command.id, session_id=command.session_id)

    def _count(self, name: str, **labels: str) -> None:
        if self._telemetry is not None:
            self._telemetry.count(name, 1, **labels)


def _reason(error: DebugServerError | KeyboardInterrupt) -> ExitReason:
    if isinstance(error, KeyboardInterrupt):
        return ExitReason.CANCELLED
    if isinstance(error, PatchApplicationError):
        return ExitReason.PATCH_FAILED
    if isinstance(error, EnvironmentBuildError):
        return ExitReason.ENV_FAILED
    if isinstance(error, LeaseLostError):
        return ExitReason.LEASE_LOST
    return ExitReason.SPAWN_FAILED


def resolve_cwd(workspace: Path, cwd: Path | None) -> Path:
    """The command's directory, which must lie in its workspace."""
    root = workspace.resolve()
    if not root.is_dir():
        raise InvalidInputError(f"workspace {str(workspace)!r} is not a directory")
    if cwd is None:
        return root
    place = (root / cwd).resolve()
    if not place.is_relative_to(root):
        raise InvalidInputError(f"cwd {str(cwd)!r} is outside the workspace {str(root)!r}: use a path inside it")
    if not place.is_dir():
        raise InvalidInputError(f"cwd {str(cwd)!r} is not a directory in the workspace {str(root)!r}")
    return place


def _unused(log_path: Path) -> bool:
    """Whether an earlier attempt, which never started, has made the log and written nothing into it."""
    index = Path(index_path(log_path))
    return log_path.stat().st_size == 0 and (not index.exists() or index.stat().st_size == 0)


def _set_aside(log_path: Path) -> None:
    """A log of that name belongs to a command of an earlier store: it is kept, under another name."""
    suffix = f".{time.time_ns()}.old"
    log_path.rename(f"{log_path}{suffix}")
    with contextlib.suppress(FileNotFoundError):
        Path(index_path(log_path)).rename(f"{index_path(log_path)}{suffix}")
