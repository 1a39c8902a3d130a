"""Runs one claimed command: patch, environment, log, keeper, exit record, terminal state."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from debug_server.errors import (
    CommandExecutionError,
    ConflictError,
    DebugServerError,
    DiskFullError,
    KeeperError,
    ResourcesExhaustedError,
    StoreUnavailableError,
)
from debug_server.model import Command, CommandStatus, ExitReason, ExitRecord
from debug_server.ports import CommandStore, Telemetry
from debug_server.runner.cancellation import Cancellation, StartCancelledError
from debug_server.runner.deferred_signals import defer_signals, interruptible
from debug_server.runner.directory_placement import spread_subdirectories
from debug_server.runner.end_recorder import STORE_RETRY, STORE_SECONDS, End, EndRecorder, is_claim_of
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.launch import launch
from debug_server.runner.lfs_pointers import lfs_hint
from debug_server.runner.log_listener import observe_log
from debug_server.runner.log_reader import is_unused, seal_log
from debug_server.runner.planning import Job, Planner, set_log_aside
from debug_server.runner.preparation import Preparation, StageLog
from debug_server.runner.run_dirs import writer_of
from debug_server.runner.running_command import RunningCommand
from debug_server.runner.settings import RunnerPaths
from debug_server.runner.spec import CommandResult
from debug_server.runner.start_failures import (
    reason_of,
    start_failure,
    text_without_tool_output,
    unexpected_as_start_failure,
)
from debug_server.runner.watchdog import Watchdog

if TYPE_CHECKING:
    from debug_server.runner.environment import EnvironmentManager

R = TypeVar("R")

_LOG = logging.getLogger(__name__)
# The start and the end of a command that ends within this time are one commit: a second commit and its notifications
# would add a third to the time of a short command.
_BRIEF_SECONDS = 0.005
_KNOWN_LOG_DIRS = 1000  # folders that are known to exist: each command in a folder of its own has a new one
CANCELLED = "cancelled on request"


class Pipeline:
    """Runs claimed commands, each in the thread that calls; knows which ones run now."""

    def __init__(
        self,
        *,
        store: CommandStore,
        paths: RunnerPaths,
        pool: KeeperPool,
        planner: Planner,
        environments: Callable[[], EnvironmentManager | None],
        telemetry: Telemetry | None = None,
    ) -> None:
        self._store = store
        self._logs_dir, self._keepers_dir = paths.logs_dir, paths.keepers_dir
        self._pool = pool
        self._planner = planner
        self._preparation = Preparation(
            environments=environments, patches_dir=paths.patches_dir, base_env=planner.base_env
        )
        self._telemetry = telemetry
        self._endings = EndRecorder(store)
        self._lock = threading.Lock()
        self._running: dict[int, RunningCommand] = {}
        self._starting: dict[int, Cancellation] = {}
        self._log_dirs: set[Path] = set()
        self._watchdog = Watchdog(self._running_commands, patience=planner.keeper_patience)

    def run(self, job: Job) -> CommandResult:
        """From a claimed command to its terminal state.

        ResourcesExhaustedError, with ``job.requeue_exhausted``: it was not started and can be requeued.

        PatchApplicationError, EnvironmentBuildError and CommandExecutionError are raised after the row has ended;
        UnrecordedEndError if the store is unavailable for longer than ``job.store_seconds``; ``record_ends`` records it
        later.
        """
        log_path = self.log_path(job.command)
        began = time.monotonic()
        # The end is recorded before the stack is unwound: a slow observer must not keep the row running.
        with defer_signals(), ExitStack() as stack, self._cancellable(job.command.id) as cancellation:
            try:
                self._prepare_log_path(job.command, log_path)
                stack.enter_context(self._span(job.command))
                running = self._start(job, log_path, stack, cancellation)
            except ResourcesExhaustedError as error:
                if job.requeue_exhausted:
                    raise
                refusal = _not_started(job.command, error)
                self._end_before_start(job.command, log_path, refusal, job.store_seconds)
                raise refusal from error
            except StartCancelledError as error:
                return self._end_before_start(job.command, log_path, error, job.store_seconds)
            except OSError as error:
                refusal = _not_started(job.command, error)
                self._end_before_start(job.command, log_path, refusal, job.store_seconds)
                raise refusal from error
            except (DebugServerError, KeyboardInterrupt) as error:
                self._end_before_start(job.command, log_path, error, job.store_seconds)
                raise
            record, interrupted = self._wait_for_end(job, running, log_path)
            handle = None if running.start_recorded else running.handle
            end = End(command=job.command, record=record, log_path=log_path, handle=handle, running=running)
            result = self._finish(end, job.store_seconds)
            if self._telemetry is not None:
                overhead = time.monotonic() - began - record.wall_seconds
                self._telemetry.observe("debug_server_command_overhead_seconds", overhead)
        if interrupted:
            raise KeyboardInterrupt
        if record.reason is ExitReason.SPAWN_FAILED:
            raise CommandExecutionError(f"command {job.command.id} could not be started: {record.message}")
        return result

    def refuse(self, command: Command, error: Exception, *, store_seconds: float = STORE_SECONDS) -> None:
        """End a claimed command that cannot be prepared."""
        if not isinstance(error, DebugServerError):
            error = start_failure(command, error)
        log_path = self.log_path(command)
        with contextlib.suppress(OSError, CommandExecutionError):  # the row has the error even if no log can be written
            self._prepare_log_path(command, log_path)
        self._end_before_start(command, log_path, error, store_seconds)

    def wait_for_adopted(
        self, command: Command, running: RunningCommand, log_path: Path, *, store_seconds: float = STORE_SECONDS
    ) -> CommandResult:
        """Wait for a command that another process started; UnrecordedEndError as in ``run``."""
        with self._registered(command.id, running):
            self._watchdog.ensure_running()
            record = running.wait()
        end = End(command=command, record=record, log_path=log_path, running=running)
        return self._finish(end, store_seconds)

    @property
    def unrecorded(self) -> list[int]:
        """The commands that ended in this process and whose end is not in the store yet."""
        return self._endings.unrecorded

    def record_ends(self, commands: Collection[int]) -> list[Command]:
        """Record the ends of these ``unrecorded`` commands; returns the recorded ones.

        StoreUnavailableError if none could be recorded.
        """
        recorded: list[Command] = []
        try:
            for end in self._endings.retry(commands):
                self._after_recording(end)
                recorded.append(end.command)
        except StoreUnavailableError:
            if not recorded:
                raise
        return recorded

    def cancel(self, command_id: int, message: str = CANCELLED) -> bool:
        """Cancel a command that this process starts or runs; False if it does neither. Does not wait."""
        with self._lock:
            running = self._running.get(command_id)
            if running is None and command_id in self._starting:
                self._starting[command_id].request(message)
                return True
        if running is None:
            return False
        running.cancel(message)
        return True

    def cancel_all(self, message: str = CANCELLED) -> None:
        """Cancel every command that this process starts or runs. Does not wait."""
        with self._lock:
            numbers = [*self._running, *self._starting]
        for number in numbers:
            self.cancel(number, message)

    def close(self) -> None:
        """Leave unrecorded ends to other processes, wait for background work and stop the watchdog."""
        self._endings.leave()
        self._preparation.close()
        self._watchdog.close()

    def detach_all(self) -> None:
        """Disconnect from all running and unrecorded commands; another process can adopt them."""
        self._endings.leave()
        with self._lock:
            for running in self._running.values():
                running.detach()

    def _running_commands(self) -> list[RunningCommand]:
        with self._lock:
            return list(self._running.values())

    @property
    def running(self) -> list[int]:
        """The commands that this process runs."""
        with self._lock:
            return sorted(self._running)

    def log_path(self, command: Command) -> Path:
        """The path of a command's log."""
        return self._planner.log_path(command)

    def _prepare_log_path(self, command: Command, path: Path) -> None:
        """Create the folder and set an older log aside; CommandExecutionError if a running command writes there."""
        if path.parent not in self._log_dirs:
            if len(self._log_dirs) >= _KNOWN_LOG_DIRS:
                self._log_dirs.clear()
            if not self._log_dirs:
                self._logs_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                spread_subdirectories(self._logs_dir)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._log_dirs.add(path.parent)
        if os.path.exists(path) and not is_unused(path):  # noqa: PTH110 - faster than Path.exists
            if writer_of(self._keepers_dir, command.id, path) is not None:
                raise CommandExecutionError(
                    f"command {command.id} could not be started: {path} is the log of a running command of another "
                    "store that uses this folder: give each store its own folder (paths.artifacts)"
                )
            set_log_aside(path)

    # -- stages ---------------------------------------------------------------------------------------------------

    def _start(self, job: Job, log_path: Path, stack: ExitStack, cancellation: Cancellation) -> RunningCommand:
        log = StageLog(log_path)
        stack.callback(log.close)
        if job.observers:
            observed = observe_log(log_path, job.observers)
            stack.callback(_finish_observers, observed.finish, job.observer_seconds)
        with unexpected_as_start_failure(job.command):
            with interruptible():
                cancellation.check()
                if job.patch is not None:
                    self._preparation.patch(Path(job.lease.path), job.patch, log, cancellation)
                environment, variables = self._preparation.environment(
                    job.env_request, job.lease, log, stack, cancellation
                )
            # Only a lease has a commit: a directory of the caller's is none of our business.
            if getattr(job.lease, "commit_sha", None) and (hint := lfs_hint(Path(job.lease.path))) is not None:
                log.write(f"[debug-server] lfs: {hint}\n")
            order = self._planner.order(job, variables, log_path)
            if order.folders is not None:
                order.folders.create()
        if log.begun:
            log.write(f"[debug-server] run: {shlex.join(job.spec.argv)}\n")
        log.close()
        self._check_cancelled(job.command, cancellation)
        try:
            running = launch(self._pool, self._keepers_dir, order)
        except (KeeperError, DiskFullError) as error:
            raise _not_started(job.command, error) from error
        if environment is not None:  # the keeper may outlive this process and needs it until the end
            try:
                environment.assign(running.handle["keeper"]["pid"])
            except OSError as error:  # the command runs, and this process holds the environment
                _LOG.warning("environment_not_assigned", extra={"command_id": job.command.id, "error": str(error)})
        self._count("debug_server_commands_started_total")
        return running

    def _check_cancelled(self, command: Command, cancellation: Cancellation) -> None:
        """StartCancelledError after a request here, or in the row of a queued command by another process."""
        cancellation.check()
        if not command.plan.inline:
            with contextlib.suppress(StoreUnavailableError):  # checked again when the start is recorded
                if self._store.commands.cancel_requested(command.id):
                    raise StartCancelledError(CANCELLED)

    def _record_start(self, job: Job, running: RunningCommand, log_path: Path) -> None:
        """ConflictError if another owner has the row now; after StoreUnavailableError it can be repeated."""
        command = job.command
        try:
            row = self._store.commands.start(
                command.id,
                attempt=command.attempt,
                owner=command.owner or "",
                handle=running.handle,
                log_path=str(log_path),
            )
        except ConflictError:  # or an earlier attempt was committed, but its answer was lost
            row = self._store.commands.get(command.id)
            if not (is_claim_of(row, command) and row.status is CommandStatus.RUNNING):
                raise
        running.start_recorded = True
        if row.cancel_requested:
            running.cancel()
        if job.on_start is not None:
            job.on_start(running)

    # -- the end --------------------------------------------------------------------------------------------------

    def _wait_for_end(self, job: Job, running: RunningCommand, log_path: Path) -> tuple[ExitRecord, bool]:
        """Wait for a started command; returns its exit record and whether the caller was interrupted."""
        with self._registered(job.command.id, running):
            try:
                return self._record_start_and_wait(job, running, log_path)
            except ConflictError:
                # Another owner has the row and may have started the command under another keeper: end this one.
                running.cancel_and_wait("its row belongs to another owner")
                running.dispose()
                raise
            except OSError as error:  # the keeper died and its disk is full, or no file descriptor is left
                return ExitRecord(reason=ExitReason.LOST, message=f"its end could not be read: {error}"), False

    def _record_start_and_wait(self, job: Job, running: RunningCommand, log_path: Path) -> tuple[ExitRecord, bool]:
        """If the store stays unavailable until the command ends, the start is recorded with the end."""
        record, interrupted = None, False
        if job.on_start is None:
            record, interrupted = _cancel_on_interrupt(running, lambda: running.ends_within(_BRIEF_SECONDS))
        if record is None:
            self._watchdog.ensure_running()
        while record is None and not running.start_recorded:
            try:
                self._record_start(job, running, log_path)
            except StoreUnavailableError as error:
                _LOG.warning("start_postponed", extra={"command_id": job.command.id, "error": str(error)})
                again = time.monotonic() + STORE_RETRY
                record, interrupted = _cancel_on_interrupt(running, lambda: running.ends_within(STORE_RETRY))
                if record is None:  # ends_within returned at once: the keeper has disconnected
                    time.sleep(max(0.0, again - time.monotonic()))
        if record is None:
            return _cancel_on_interrupt(running, running.wait)
        return record, interrupted

    @contextmanager
    def _cancellable(self, command_id: int) -> Iterator[Cancellation]:
        """Register a command that starts: an observer may cancel it before ``launch`` returns."""
        cancellation = Cancellation()
        with self._lock:
            self._starting[command_id] = cancellation
        try:
            yield cancellation
        finally:
            with self._lock:
                self._starting.pop(command_id, None)

    @contextmanager
    def _registered(self, command_id: int, running: RunningCommand) -> Iterator[None]:
        with self._lock:
            self._running[command_id] = running
            cancellation = self._starting.pop(command_id, None)
        try:
            if cancellation is not None and cancellation.message is not None:
                running.cancel(cancellation.message)
            yield
        finally:
            with self._lock:
                del self._running[command_id]

    def _finish(self, end: End, store_seconds: float) -> CommandResult:
        self._endings.record(end, seconds=store_seconds)
        self._after_recording(end)
        return end.result

    def _after_recording(self, end: End) -> None:
        """Count and log an end that is in the store, and remove the run directory."""
        record = end.record
        self._count("debug_server_commands_ended_total", reason=record.reason.value)
        if self._telemetry is not None:
            self._telemetry.observe("debug_server_command_seconds", record.wall_seconds)
            self._telemetry.count("debug_server_log_bytes_total", record.stdout_bytes + record.stderr_bytes)
        fields = {"command_id": end.command.id, "reason": record.reason.value, "seconds": record.wall_seconds}
        _LOG.info("command_finished", extra=fields)
        if end.running is not None:
            end.running.dispose()

    def _end_before_start(
        self, command: Command, log_path: Path, error: DebugServerError | KeyboardInterrupt, store_seconds: float
    ) -> CommandResult:
        """End a command that never started, and write the error to its log."""
        if writer_of(self._keepers_dir, command.id, log_path) is not None:
            log_path = log_path.with_suffix(f".{time.time_ns()}.log")
        log = StageLog(log_path)
        with contextlib.suppress(OSError):  # a full disk: the row still has the error
            log.write(f"[debug-server] {reason_of(error).value}: {text_without_tool_output(error)}\n")
            log.close()
            seal_log(log_path)
        record = ExitRecord(reason=reason_of(error), message=str(error) or "interrupted")
        return self._finish(End(command=command, record=record, log_path=log_path), store_seconds)

    def _span(self, command: Command) -> AbstractContextManager[None]:
        if self._telemetry is None:
            return contextlib.nullcontext()
        return self._telemetry.span("command", command_id=command.id, session_id=command.session_id)

    def _count(self, name: str, **labels: str) -> None:
        if self._telemetry is not None:
            self._telemetry.count(name, 1, **labels)


def _cancel_on_interrupt(running: RunningCommand, wait: Callable[[], R]) -> tuple[R | ExitRecord, bool]:
    """Return the result of ``wait`` and False; after KeyboardInterrupt, cancel and return the exit record and True."""
    try:
        return wait(), False
    except KeyboardInterrupt:
        return running.cancel_and_wait("interrupted"), True


def _not_started(command: Command, error: Exception) -> CommandExecutionError:
    return CommandExecutionError(f"command {command.id} could not be started: {error}")


def _finish_observers(finish: Callable[[float], object], seconds: float) -> None:
    with interruptible():
        finish(seconds)
