"""The queue's engine in one process: claims waiting commands and runs each in a thread of its own.

    start -> recover what dead owners left -> claim while there is room -> run -> ... -> stop (let go, keepers carry on)

Any number of engines may work on one store: a claim is a compare-and-set, and only the commands of a dead owner are
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

from debug_server.engine.forgotten import ForgottenClaims
from debug_server.engine.housekeeping import Housekeeper
from debug_server.engine.keeper_calls import KeeperCalls
from debug_server.engine.probe import verdict
from debug_server.engine.schedules import Scheduler
from debug_server.engine.sessions import Sessions
from debug_server.engine.settling import Settler
from debug_server.engine.starting import CommandThreads
from debug_server.errors import DebugServerError, StoreUnavailableError
from debug_server.events import REPAIR_SECONDS, EventFeed
from debug_server.model import Command, CommandSpec, DueTime, NewEvent, Notice, QueuedRun, Session, SessionStatus
from debug_server.ports import Telemetry
from debug_server.runner.end_recorder import UnrecordedEndError
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.limits import Capabilities
from debug_server.runner.recovery import Adopted, recover
from debug_server.runner.running_command import DetachedError
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore
from debug_server.store.commands import STARTED

_LOG = logging.getLogger(__name__)
_LOOK_AGAIN_SECONDS = 1.0
_NO_WAIT = 0.0  # for a store that is away: the settler waits, and the place of the command is free


class LocalEngine:
    """Works off the queue of one store on this machine."""

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
        self._lock = threading.Condition()
        self._at_work: set[int] = set()
        self._threads = CommandThreads()
        self._reserved = 0  # places for commands that are being added
        self._keyed = threading.Lock()
        self._stirred = True  # whether something may be to claim
        self._backlog = True  # whether something waited when last seen: then each end may make room for it
        self._stopping = False
        self._store_away = False  # which is told once
        self._dispatcher: threading.Thread | None = None
        self._unlisten = store.events.add_listener(self._noticed)
        self._housekeeper = Housekeeper(
            store=store, sessions=self._sessions, supervisor=supervisor, cancel=self.cancel, wait=self.wait
        )
        self._keepers = KeeperCalls(store=store, keepers_dir=supervisor.paths.keepers_dir)
        self._settler = Settler(pipeline=supervisor.pipeline, conclude=self._conclude_settled, recover=self._recover)
        self._forgotten = ForgottenClaims(store=store, supervisor=supervisor)
        self.schedules = Scheduler(store)

    def start(self) -> list[int]:
        """Recover, then begin to claim; returns the commands that were adopted."""
        adopted = self._recover()
        self._settler.start()
        self._housekeeper.start(self._look_around)
        self._dispatcher = threading.Thread(target=self._dispatch, name="engine", daemon=True)
        self._dispatcher.start()
        self.schedules.start()
        return adopted

    def _look_around(self) -> None:
        self._settler.look()
        self._recover(self._forgotten.find(busy=self._at_work))

    def _recover(self, forgotten: Collection[int] = ()) -> list[int]:
        """Carry on what dead owners left; returns those that still run."""
        adopted = recover(self._store, self._supervisor.paths, self._supervisor.owner, forgotten=forgotten)
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
        key_bound: int | None = None,
        order_key: str | None = None,
        idempotency_key: str | None = None,
        subject: str | None = None,
        closes_session: bool = False,
        artifacts: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Command:
        """Put a command into the queue; QueueFullError when it is at its bound.

        One whose turn it is at once is claimed as it is added, and begun here instead of by way of the dispatcher.
        """
        add = partial(
            self._store.commands.add,
            session_id=session_id,
            **self._bounded(spec).columns(closes_session=closes_session, artifacts=artifacts),
            max_pending=self._settings.max_pending,
            priority=priority,
            queue_key=queue_key,
            key_limit=key_limit,
            key_bound=key_bound,
            order_key=order_key,
            subject=subject,
            idempotency_key=idempotency_key,
            metadata=metadata,
            in_turn=True,
        )
        if idempotency_key is None:
            return self._begin(add)
        with self._keyed:  # of two with one key in this process the second finds the first: what is added is new
            return self._store.commands.by_key(session_id, idempotency_key) or self._begin(add)

    def _begin(self, add: Callable[..., Command]) -> Command:
        """Add a command and, if there is room and it was claimed with that, run it."""
        room = self._reserve()
        try:
            command = add(claim_owner=self.owner if room else None)
        except BaseException:
            self._give_back(room)
            raise
        if room and command.owner == self.owner:
            self._spawn(self._run, command, reserved=True)
        else:
            self._give_back(room)
        return command

    def _reserve(self) -> bool:
        """Whether one more may run here; if so, its place is held."""
        with self._lock:
            room = self._has_room() and self._dispatcher is not None and not self._stopping
            self._reserved += room
        return room

    def _give_back(self, room: bool) -> None:
        with self._lock:
            self._reserved -= room
            self._lock.notify_all()

    def queue_run(self, run: QueuedRun) -> Command:
        """Open a session and put its one command into the queue, in one commit.

        QueueFullError when one of its bounds is reached, ConflictError when one of its claims is taken.
        """
        added = self.queue_together([run])
        assert added is not None and isinstance(added[0], Command)  # nothing was due, nothing else is told
        return added[0]

    def queue_together(
        self, steps: Sequence[QueuedRun | NewEvent], due: DueTime | None = None
    ) -> list[Command | NewEvent] | None:
        """Queue runs and tell events, all in one commit or none; see ``store.runs.add``."""
        bounded = [
            replace(step, spec=self._bounded(step.spec)) if isinstance(step, QueuedRun) else step for step in steps
        ]
        return self._store.runs.add(bounded, max_pending=self._settings.max_pending, due=due)

    def _bounded(self, spec: CommandSpec) -> CommandSpec:
        return spec.within(self._settings.limits)

    def cancel(self, command_id: int, message: str = "cancelled on request") -> Command:
        """End a command wherever it is; a terminal one is returned unchanged. Does not wait for the tree."""
        command = self._store.commands.request_cancel(command_id)
        if command.status.terminal and command.started_at is None:
            self._sessions.conclude_unstarted(command)
        if not command.status.terminal and not self._supervisor.pipeline.cancel(command_id, message):
            self._keepers.deliver(command_id, {"op": "cancel", "message": message})
        return self._store.commands.get(command_id)

    def signal(self, command_id: int, number: int) -> None:
        """Send a signal to a running command's first process; KeeperError when it does not run."""
        self._keepers.request(self._store.commands.get(command_id), {"op": "signal", "signal": number})

    @property
    def owner(self) -> str:
        """The name of this process in what it has claimed."""
        return self._supervisor.owner

    @property
    def capabilities(self) -> Capabilities:
        """What this machine can enforce."""
        return self._supervisor.pool.capabilities

    def spare_processes(self) -> None:
        """Hold no process ahead of need until the next command: somebody could have none."""
        self._supervisor.pool.shed()

    def check(self) -> str:
        """``ok``, or why nothing more would be run: for a probe of readiness."""
        if self._dispatcher is not None and not self._dispatcher.is_alive() and not self._stopping:
            return "the dispatcher has ended: restart the server"
        with self._lock:
            held = [] if self._has_room() else sorted(self._at_work)
        return verdict(self._store, self._supervisor.paths.keepers_dir, held)

    def connect(self, command: Command) -> KeeperConnection:
        """To its keeper, whose socket comes a moment after its row says that it runs."""
        return self._keepers.connect(command)

    def wait(self, command_id: int, timeout: float) -> Command:
        """The command once it is terminal, or as it is after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        after = self._store.events.last()
        while True:
            command = self._store.commands.get(command_id)
            left = deadline - time.monotonic()
            if command.status.terminal:
                self.wait_for_conclusion(command_id, left)
                return command
            if left <= 0:
                return command
            for event in self._feed.wait(after, min(left, _LOOK_AGAIN_SECONDS)):
                after = event.seq

    def is_at_work(self, command_id: int) -> bool:
        """Whether this process still has something to do for a command, after its end, too."""
        return command_id in self._at_work or self._settler.holds(command_id)

    def wait_for_conclusion(self, command_id: int, seconds: float) -> None:
        """Its artifacts are collected after its end: whoever waited for it finds them."""
        deadline = time.monotonic() + seconds
        with self._lock:
            self._lock.wait_for(lambda: command_id not in self._at_work, max(seconds, 0.0))
        self._settler.wait_for(command_id, deadline - time.monotonic())

    def close_session(self, session: Session, status: SessionStatus) -> None:
        """End a session's commands, wait for their trees to be empty, release its workspace."""
        self._housekeeper.close(session, status)

    def stop(self, *, grace: float = 0.0) -> None:
        """Claim no more; wait up to ``grace`` for what runs, then let it go on without us."""
        self._stopping = True
        self.schedules.stop()
        self._housekeeper.stop()
        self._settler.stop()
        self._feed.close()
        self._unlisten()
        with self._lock:
            self._lock.notify_all()
        if self._dispatcher is not None:
            self._dispatcher.join()
        deadline = time.monotonic() + grace
        with self._lock:
            self._lock.wait_for(lambda: not self._at_work, grace)
        while self._at_work and time.monotonic() < deadline + _LOOK_AGAIN_SECONDS * 5:
            self._supervisor.pipeline.detach_all()
            with self._lock:
                self._lock.wait_for(lambda: not self._at_work, 0.05)
        self._supervisor.pipeline.detach_all()

    # -- the dispatcher -------------------------------------------------------------------------------------------

    def _noticed(self, notice: Notice) -> None:
        """A command came that waits, or what it waited for may be over."""
        if notice.waits or (self._backlog and notice.kind != STARTED):
            with self._lock:
                self._stirred = self._backlog = True
                self._lock.notify_all()

    def _dispatch(self) -> None:
        while not self._stopping:
            with self._lock:
                self._lock.wait_for(lambda: self._stopping or self._has_room() or self._threads.waiting)
                self._stirred = False  # before the claim: what comes in between is not slept over
            if self._threads.waiting:
                self._threads.retry()
                continue
            command = None if self._stopping else self._claim()
            if command is not None:
                self._spawn(self._run, command)
            else:
                self._pause()

    def _has_room(self) -> bool:
        return len(self._at_work) + self._reserved < self._settings.max_concurrency

    def _pause(self) -> None:
        """Until this process has something new, or, every now and then, another one has."""
        while not self._stopping:
            depth = self._depth()
            with self._lock:
                if not self._stirred:
                    self._backlog = depth > 0
                if self._lock.wait_for(self._is_wanted, REPAIR_SECONDS) or depth:
                    return

    def _is_wanted(self) -> bool:
        return self._stopping or self._stirred or self._threads.waiting

    def _depth(self) -> int:
        try:
            depth = self._store.queue.depth()
        except DebugServerError as error:  # away for a moment, which must not end the dispatcher
            if not self._store_away:
                _LOG.warning("dispatch_failed", extra={"error": str(error)})
            self._store_away = True
            return 0
        self._store_away = False
        self._gauge("debug_server_queue_depth", depth)
        return depth

    def _claim(self) -> Command | None:
        try:
            return self._store.queue.claim_next(self._supervisor.owner)
        except DebugServerError as error:
            _LOG.warning("claim_failed", extra={"error": str(error)})
            time.sleep(_LOOK_AGAIN_SECONDS)
            return None

    def _spawn(self, work: Callable[[Any], None], item: Command | Adopted, *, reserved: bool = False) -> None:
        number = item.command.id if isinstance(item, Adopted) else item.id
        with self._lock:
            self._at_work.add(number)
            self._reserved -= reserved
            self._gauge("debug_server_keepers_live", len(self._at_work))
        self._threads.start(partial(self._work, work, item, number))
        with self._lock:
            self._lock.notify_all()  # where no thread can be had, the dispatcher tries again

    def _work(self, work: Callable[[Any], None], item: Command | Adopted, number: int) -> None:
        try:
            work(item)
        except DetachedError:
            pass
        except UnrecordedEndError:
            self._settler.look()
        except DebugServerError as error:  # the row has its end; this is for the operator
            _LOG.info("command_failed", extra={"command_id": number, "code": error.code, "error": str(error)})
        finally:
            with self._lock:
                self._at_work.discard(number)
                self._gauge("debug_server_keepers_live", len(self._at_work))
                self._lock.notify_all()

    def _run(self, command: Command) -> None:
        waited = max(0.0, (command.updated_at - command.created_at).total_seconds())
        if self._telemetry is not None:
            self._telemetry.observe("debug_server_queue_wait_seconds", waited)
        try:
            job = self._sessions.job(command)
        except StoreUnavailableError:
            self._settler.give_back(command)
            raise
        except Exception as error:  # also a defect: without its end the command would be under way for ever
            self._supervisor.pipeline.refuse(command, error, store_seconds=_NO_WAIT)
            self._sessions.conclude_unstarted(command)
            raise
        try:
            self._supervisor.pipeline.run(replace(job, store_seconds=_NO_WAIT))
        finally:
            self._conclude(command)

    def _follow(self, item: Adopted) -> None:
        follow = self._supervisor.pipeline.follow_adopted
        follow(item.command, item.running, item.log_path, store_seconds=_NO_WAIT)
        self._conclude(item.command)

    def _conclude(self, command: Command) -> None:
        try:
            self._sessions.conclude(command)
        except StoreUnavailableError:
            self._settler.conclude_later(command)

    def _conclude_settled(self, command: Command) -> None:
        """The same for one whose end was recorded late; it may be one that was refused."""
        if self._store.commands.get(command.id).started_at is None:
            self._sessions.conclude_unstarted(command)
        else:
            self._sessions.conclude(command)

    def _gauge(self, name: str, value: float) -> None:
        if self._telemetry is not None:
            self._telemetry.gauge(name, value)
