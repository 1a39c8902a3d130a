"""Runs the queue in one process: claims waiting commands and runs each in a thread of its own.

    start -> recover commands of dead owners -> claim while slots are free -> run -> ... -> stop (keepers continue)

Any number of engines may use one store: a claim is a compare-and-set, and only the commands of a dead owner are
taken over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from debug_server.engine.command_threads import CommandThreads
from debug_server.engine.deferred_writes import DeferredWrites
from debug_server.engine.housekeeping import Housekeeper
from debug_server.engine.keeper_calls import KeeperCalls
from debug_server.engine.orphaned_claims import OrphanedClaims
from debug_server.engine.run_or_log import run_or_log
from debug_server.engine.schedules import Scheduler
from debug_server.engine.sessions import Sessions
from debug_server.engine.slot_check import check_slots
from debug_server.errors import DebugServerError, ResourcesExhaustedError, StoreUnavailableError
from debug_server.events import POLL_SECONDS, EventFeed
from debug_server.model import (
    Command,
    CommandSpec,
    DueTime,
    NewEvent,
    Notice,
    QueuedRun,
    RequestKey,
    Session,
    SessionStatus,
)
from debug_server.ports import Telemetry
from debug_server.runner.end_recorder import UnrecordedEndError
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.limits import Capabilities
from debug_server.runner.recovery import Adopted, Claim, recover
from debug_server.runner.running_command import DetachedError
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore
from debug_server.store.commands import STARTED

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 1.0
_NO_WAIT = 0.0  # do not wait for an unavailable store: defer the write, so that the command's slot is freed


class LocalEngine:
    """Runs the queue of one store on this machine."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        supervisor: WorkerSupervisor,
        sessions: Sessions | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._store, self._telemetry = store, telemetry
        self._supervisor, self._settings = supervisor, supervisor.settings
        self._sessions = sessions or Sessions.of(store, supervisor.settings, process=lambda: supervisor.owner)
        self._feed = EventFeed(store.events)
        lock = threading.RLock()
        self._lock = threading.Condition(lock)  # notified when a command is no longer active
        self._claimable = threading.Condition(lock)  # wakes the claim thread alone
        self._active: set[int] = set()
        self._threads = CommandThreads()
        self._reserved = 0  # slots for commands that are being added
        self._key_lock = threading.Lock()
        self._recovery_lock = threading.Lock()  # two threads could take over one claim of this owner
        self._new_work = True  # whether there may be a command to claim
        self._backlog = True  # whether commands waited at the last check: then any commit may let one of them start
        self._stopping = False
        self._store_unavailable = False  # so that it is logged once
        self._claim_thread: threading.Thread | None = None
        self._unlisten = store.events.add_listener(self._on_commit)
        self._housekeeper = Housekeeper(
            store=store, sessions=self._sessions, supervisor=supervisor, cancel=self.cancel, wait=self.wait
        )
        self._keepers = KeeperCalls(store=store, keepers_dir=supervisor.paths.keepers_dir)
        self._deferred = DeferredWrites(
            pipeline=supervisor.pipeline, follow_up=self._follow_up_recorded, recover=self._recover
        )
        self._orphaned = OrphanedClaims(store=store, supervisor=supervisor)
        self.schedules = Scheduler(store)

    def start(self) -> list[int]:
        """Recover, then start to claim; returns the adopted commands. What fails is retried by the housekeeper."""
        adopted = run_or_log("housekeeping_failed", self._recover) or []
        self._deferred.start()
        self._housekeeper.start(self._recover_periodically)
        self._claim_thread = threading.Thread(target=self._claim_loop, name="engine", daemon=True)
        self._claim_thread.start()
        self.schedules.start()
        return adopted

    def _recover_periodically(self) -> None:
        """Record postponed ends, and recover commands of dead owners and orphaned claims."""
        self._deferred.wake()
        self._recover(self._orphaned.find(busy=self._active))

    def _recover(self, orphaned: Collection[Claim] = ()) -> list[int]:
        """Take over the commands of dead owners; returns those that still run."""
        with self._recovery_lock:
            adopted = recover(self._store, self._supervisor.paths, self._supervisor.owner, orphaned=orphaned)
        for item in adopted:
            self._spawn(self._follow, item)
        return [item.command.id for item in adopted]

    def submit(
        self,
        *,
        session_id: int,
        spec: CommandSpec,
        priority: int = 0,
        queue_key: str | None = None,
        key_limit: int = 1,
        key_max_pending: int | None = None,
        order_key: str | None = None,
        idempotency_key: str | None = None,
        subject: str | None = None,
        closes_session: bool = False,
        artifacts: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        request: RequestKey | None = None,
        told: Callable[[Command], None] | None = None,
    ) -> Command:
        """Add a command to the queue; QueueFullError if the queue is full.

        A command that can start at once is claimed when it is added, and started without the claim thread. With
        ``told`` the calling thread, one of ``run_in_thread``, itself runs it to its end; ``told`` gets the row before.
        The commit answers the ``request``; ConflictError if its key is known.
        """
        spec = self._with_default_limits(spec)
        add = partial(
            self._store.commands.add,
            session_id=session_id,
            **spec.to_columns(closes_session=closes_session, artifacts=artifacts),
            max_pending=self._settings.max_pending,
            priority=priority,
            queue_key=queue_key,
            key_limit=key_limit,
            key_max_pending=key_max_pending,
            order_key=order_key,
            subject=subject,
            idempotency_key=idempotency_key,
            metadata=metadata,
            in_turn=True,
            request=request,
        )
        if idempotency_key is None:
            command, claimed = self._add(add)
        else:
            with self._key_lock:  # so that the second of two requests with one key finds the row of the first
                known = self._store.commands.by_key(session_id, idempotency_key)
                command, claimed = (known, False) if known is not None else self._add(add)
        self._run_if_claimed(command, spec, claimed=claimed, told=told)
        return command

    def _run_if_claimed(
        self, command: Command, spec: CommandSpec, *, claimed: bool, told: Callable[[Command], None] | None
    ) -> None:
        """Run an added command in another thread or, if its row is ``told``, in this one."""
        if claimed and told is None:
            self._spawn(partial(self._run, spec=spec), command)
        elif told is not None:
            try:
                told(command)
            finally:
                if claimed:
                    self._work(partial(self._run, spec=spec), command, command.id)

    def run_in_thread(self, work: Callable[[], None]) -> None:
        """Run ``work`` in a thread of its own, as soon as one can be created."""
        self._threads.start(work)
        self._retry_threads()

    def _add(self, add: Callable[..., Command]) -> tuple[Command, bool]:
        """Add a command, and claim it if it can start now and a slot is free; returns whether this process runs it."""
        has_slot = self._reserve_slot()
        claimed = False
        try:
            command = add(claim_owner=self.owner if has_slot else None)
            claimed = has_slot and command.owner == self.owner
            if claimed:
                self._activate(command.id)
        finally:
            if has_slot:
                self._release_slot()
        return command, claimed

    def _reserve_slot(self) -> bool:
        """Reserve a slot if one is free; returns whether it was."""
        with self._lock:
            has_slot = self._has_slot() and self._claim_thread is not None and not self._stopping
            if has_slot:
                self._reserved += 1
        return has_slot

    def _release_slot(self) -> None:
        with self._lock:
            was_full = not self._has_slot()
            self._reserved -= 1
            if was_full:
                self._claimable.notify_all()

    def _activate(self, command_id: int) -> None:
        with self._lock:
            self._active.add(command_id)
            self._set_gauge("debug_server_keepers_live", len(self._active))

    def _retry_threads(self) -> None:
        """Let the claim thread start work for which no thread could be created."""
        if self._threads.waiting:
            with self._lock:
                self._claimable.notify_all()

    def queue_run(self, run: QueuedRun, *, told: Callable[[Command], None] | None = None) -> Command:
        """Open a session and add its one command to the queue, in one commit; it starts, and is told, as in ``submit``.

        QueueFullError if a limit is reached, ConflictError if a claimed resource is in use.
        """
        run = self._limited(run)
        add = partial(self._store.runs.add_one, run, max_pending=self._settings.max_pending)
        command, claimed = self._add(add)
        self._run_if_claimed(command, run.spec, claimed=claimed, told=told)
        return command

    def queue_atomically(
        self, steps: Sequence[QueuedRun | NewEvent], due: DueTime | None = None
    ) -> list[Command | NewEvent] | None:
        """Queue runs and add events in one commit; see ``store.runs.add``."""
        limited = [self._limited(step) if isinstance(step, QueuedRun) else step for step in steps]
        return self._store.runs.add(limited, max_pending=self._settings.max_pending, due=due)

    def _limited(self, run: QueuedRun) -> QueuedRun:
        return replace(run, spec=self._with_default_limits(run.spec))

    def _with_default_limits(self, spec: CommandSpec) -> CommandSpec:
        return spec.with_default_limits(self._settings.limits)

    def cancel(self, command_id: int, message: str = "cancelled on request") -> Command:
        """Cancel a command, whichever process runs it; a terminal one is returned unchanged. Does not wait."""
        command = self._store.commands.request_cancel(command_id)
        if command.status.terminal and command.started_at is None:
            self._sessions.follow_up_unstarted(command)
        if not command.status.terminal and not self._supervisor.pipeline.cancel(command_id, message):
            self._keepers.deliver(command_id, {"op": "cancel", "message": message})
        return self._store.commands.get(command_id)

    def signal(self, command_id: int, number: int) -> None:
        """Send a signal to a running command's leader; KeeperError if it is not running."""
        self._keepers.request(self._store.commands.get(command_id), {"op": "signal", "signal": number})

    @property
    def owner(self) -> str:
        """The name of this process as the owner of commands."""
        return self._supervisor.owner

    @property
    def capabilities(self) -> Capabilities:
        """What this machine can enforce."""
        return self._supervisor.pool.capabilities

    def drop_spare_processes(self) -> None:
        """End the idle keepers, slots and threads: the machine has run out of processes."""
        self._threads.end_idle()
        self._supervisor.pool.close_idle()

    def check(self) -> str:
        """``ok``, or why no further command can start; for the readiness probe."""
        if self._claim_thread is not None and not self._claim_thread.is_alive() and not self._stopping:
            return "the thread that claims commands has ended: restart the server"
        with self._lock:
            held = [] if self._has_slot() else sorted(self._active)
        return check_slots(self._store, self._supervisor.paths.keepers_dir, held)

    def connect(self, command: Command) -> KeeperConnection:
        """Connect to the command's keeper; its socket appears shortly after the row says ``running``."""
        return self._keepers.connect(command)

    def wait(self, command_id: int, timeout: float) -> Command:
        """Wait until the command is terminal, at most ``timeout`` seconds; returns its current row."""
        deadline = time.monotonic() + timeout
        after = self._store.events.last()
        while True:
            command = self._store.commands.get(command_id)
            left = deadline - time.monotonic()
            if command.status.terminal:
                self.wait_for_follow_up(command_id, left)
                return command
            if left <= 0:
                return command
            for event in self._feed.wait(after, min(left, _POLL_SECONDS)):
                after = event.seq

    def runs(self, command_id: int) -> bool:
        """Whether this process runs the command: its listeners will be told of its end."""
        return command_id in self._active

    def is_active(self, command_id: int) -> bool:
        """Whether this process runs the command, or has not done its follow-up yet."""
        return command_id in self._active or self._deferred.has(command_id)

    def wait_for_follow_up(self, command_id: int, seconds: float) -> None:
        """Wait for the follow-up, so that a caller that waited for the command finds its artifacts."""
        deadline = time.monotonic() + seconds
        with self._lock:
            self._lock.wait_for(lambda: command_id not in self._active, max(seconds, 0.0))
        self._deferred.wait_for(command_id, deadline - time.monotonic())

    def close_session(self, session: Session, status: SessionStatus | None = None) -> None:
        """Cancel a session's commands, wait until their trees are empty, release its workspace; see the housekeeper."""
        self._housekeeper.close(session, status)

    def stop(self, *, grace: float = 0.0) -> None:
        """Stop claiming; wait up to ``grace`` seconds for running commands, then leave them to their keepers."""
        self._stopping = True
        self.schedules.stop()
        self._housekeeper.stop()
        self._deferred.stop()
        self._feed.close()
        self._unlisten()
        with self._lock:
            self._claimable.notify_all()
        if self._claim_thread is not None:
            self._claim_thread.join()
        deadline = time.monotonic() + grace
        with self._lock:
            self._lock.wait_for(lambda: not self._active, grace)
        while self._active and time.monotonic() < deadline + _POLL_SECONDS * 5:
            self._supervisor.pipeline.detach_all()
            with self._lock:
                self._lock.wait_for(lambda: not self._active, 0.05)
        self._supervisor.pipeline.detach_all()

    # -- the claim thread -----------------------------------------------------------------------------------------

    def _on_commit(self, notice: Notice) -> None:
        """Wake the claim thread if a command waits, or if a waiting command may now be able to start."""
        if notice.waits or (self._backlog and notice.kind != STARTED):
            with self._lock:
                self._new_work = self._backlog = True
                self._claimable.notify_all()

    def _claim_loop(self) -> None:
        while not self._stopping:
            with self._lock:
                self._claimable.wait_for(lambda: self._stopping or self._has_slot() or self._threads.waiting)
                self._new_work = False  # before the claim, so that a commit during the claim is not missed
            if self._threads.waiting:
                self._threads.retry()
                continue
            command = None if self._stopping else self._claim()
            if command is not None:
                self._spawn(self._run, command)
            else:
                self._wait_for_work()

    def _has_slot(self) -> bool:
        return len(self._active) + self._reserved < self._settings.max_concurrency

    def _wait_for_work(self) -> None:
        """Wait for a commit of this process, or until commits of other processes must be polled.

        ``_new_work``: a commit since the last claim. ``_backlog``: commands waited at the last check, so any commit may
        let one of them start. While commands wait, a claim is tried after each timeout, because another process may
        have ended a command of the same key.
        """
        while not self._stopping:
            depth = self._depth()
            with self._lock:
                if not self._new_work:
                    self._backlog = depth > 0
                woken = self._claimable.wait_for(self._should_wake, POLL_SECONDS)
            if woken or depth > 0:
                return

    def _should_wake(self) -> bool:
        return self._stopping or self._new_work or self._threads.waiting

    def _depth(self) -> int:
        try:
            depth = self._store.queue.depth()
        except DebugServerError as error:  # the claim thread must survive an unavailable store
            if not self._store_unavailable:
                _LOG.warning("queue_depth_failed", extra={"error": str(error)})
            self._store_unavailable = True
            return 0
        self._store_unavailable = False
        self._set_gauge("debug_server_queue_depth", depth)
        return depth

    def _claim(self) -> Command | None:
        try:
            return self._store.queue.claim_next(self._supervisor.owner)
        except DebugServerError as error:
            _LOG.warning("claim_failed", extra={"error": str(error)})
            time.sleep(_POLL_SECONDS)
            return None

    def _spawn(self, work: Callable[[Any], None], item: Command | Adopted) -> None:
        command_id = item.command.id if isinstance(item, Adopted) else item.id
        self._activate(command_id)
        self._threads.start(partial(self._work, work, item, command_id))
        self._retry_threads()

    def _work(self, work: Callable[[Any], None], item: Command | Adopted, command_id: int) -> None:
        try:
            work(item)
        except DetachedError:
            pass
        except UnrecordedEndError:
            self._deferred.wake()
        except DebugServerError as error:  # already recorded in the row; this line is for operators
            _LOG.info("command_failed", extra={"command_id": command_id, "code": error.code, "error": str(error)})
        finally:
            with self._lock:
                was_full = not self._has_slot()
                self._active.discard(command_id)
                self._set_gauge("debug_server_keepers_live", len(self._active))
                self._lock.notify_all()
                if was_full:
                    self._claimable.notify_all()

    def _run(self, command: Command, spec: CommandSpec | None = None) -> None:
        """Run a claimed command; ``spec`` is read from its row if it is not given."""
        waited = max(0.0, (command.updated_at - command.created_at).total_seconds())
        if self._telemetry is not None:
            self._telemetry.observe("debug_server_queue_wait_seconds", waited)
        try:
            job = self._sessions.plan_job(command, spec=spec)
        except StoreUnavailableError:
            self._deferred.requeue(command)
            raise
        except ResourcesExhaustedError:
            self._requeue_exhausted(command)
            return
        except Exception as error:  # bugs too: a command without a recorded end would stay active forever
            self._supervisor.pipeline.refuse(command, error, store_seconds=_NO_WAIT)
            self._sessions.follow_up_unstarted(command)
            raise
        try:
            self._supervisor.pipeline.run(replace(job, store_seconds=_NO_WAIT, requeue_exhausted=True))
        except ResourcesExhaustedError:
            self._requeue_exhausted(command)
        finally:
            self._follow_up(command)

    def _requeue_exhausted(self, command: Command) -> None:
        """No process could be created for it: it keeps its slot for a moment, then waits in the queue again."""
        _LOG.warning("command_requeued", extra={"command_id": command.id, "reason": "no process could be created"})
        self._threads.end_idle()
        time.sleep(_POLL_SECONDS)
        self._deferred.requeue(command)

    def _follow(self, item: Adopted) -> None:
        follow = self._supervisor.pipeline.wait_for_adopted
        follow(item.command, item.running, item.log_path, store_seconds=_NO_WAIT)
        self._follow_up(item.command)

    def _follow_up(self, command: Command) -> None:
        try:
            self._sessions.follow_up(command)
        except StoreUnavailableError:
            self._deferred.follow_up_later(command)

    def _follow_up_recorded(self, command: Command) -> None:
        """Follow up a command whose end was recorded late; it may never have started."""
        if self._store.commands.get(command.id).started_at is None:
            self._sessions.follow_up_unstarted(command)
        else:
            self._sessions.follow_up(command)

    def _set_gauge(self, name: str, value: float) -> None:
        if self._telemetry is not None:
            self._telemetry.gauge(name, value)
