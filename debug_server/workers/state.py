"""The state machine of one supervised worker; the clock and randomness are passed in.

    new -> launching -> starting -> ready
              |            |          |
              +------------+----------+--first sign of its end--> ending --tree empty--> backoff -> launching ...
                                                                                   or -> failed --reset--> backoff
    any -> draining (serves its last requests) -> stopping (TERM, KILL) -> stopped --reset--> backoff

Every state names one readiness reason and one liveness reason.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from debug_server.workers.backoff import Backoff, RestartBudget
from debug_server.workers.clock import Clock
from debug_server.workers.interface import WorkerExit

CRITICAL_FAILURES = 5


class Phase(StrEnum):
    """The state of a worker."""

    NEW = "new"  # never started
    LAUNCHING = "launching"  # requested from the runner, no process yet
    STARTING = "starting"  # a process, not ready
    READY = "ready"
    ENDING = "ending"  # it failed or is being replaced; its tree is not empty yet
    BACKOFF = "backoff"  # waits for its next start
    FAILED = "failed"  # does not start again until an operator resets it
    DRAINING = "draining"  # takes no new requests
    STOPPING = "stopping"  # is being ended without a successor
    STOPPED = "stopped"


class ReadinessReason(StrEnum):
    """Why a worker is ready, or is not."""

    SUPERVISOR_NOT_INITIALIZED = "supervisor_not_initialized"
    WORKER_NOT_STARTED = "worker_not_started"
    WORKER_LAUNCHING = "worker_launching"
    HANDSHAKE_PENDING = "handshake_pending"
    HANDSHAKE_COMPLETE = "handshake_complete"
    HANDSHAKE_FAILED = "handshake_failed"
    WORKER_EXIT = "worker_exit"
    SHUTDOWN_INITIATED = "shutdown_initiated"
    SHUTDOWN_IN_PROGRESS = "shutdown_in_progress"
    APP_SERVER_DISABLED = "app_server_disabled"


class LivenessReason(StrEnum):
    """Why a worker is alive, or is not."""

    WORKER_NOT_STARTED = "worker_not_started"
    WORKER_STARTING = "worker_starting"
    WORKER_RUNNING = "worker_running"
    WORKER_RESTARTING = "worker_restarting"
    RESTART_LIMIT_EXCEEDED = "restart_limit_exceeded"
    SHUTDOWN_IN_PROGRESS = "shutdown_in_progress"
    SHUTDOWN_COMPLETE = "shutdown_complete"


_READINESS = {
    Phase.NEW: ReadinessReason.WORKER_NOT_STARTED,
    Phase.LAUNCHING: ReadinessReason.WORKER_LAUNCHING,
    Phase.STARTING: ReadinessReason.HANDSHAKE_PENDING,
    Phase.READY: ReadinessReason.HANDSHAKE_COMPLETE,
    Phase.DRAINING: ReadinessReason.SHUTDOWN_INITIATED,
    Phase.STOPPING: ReadinessReason.SHUTDOWN_IN_PROGRESS,
    Phase.STOPPED: ReadinessReason.WORKER_NOT_STARTED,
}  # the other phases keep the reason that they were entered with
_LIVENESS = {
    Phase.NEW: LivenessReason.WORKER_NOT_STARTED,
    Phase.READY: LivenessReason.WORKER_RUNNING,
    Phase.FAILED: LivenessReason.RESTART_LIMIT_EXCEEDED,
    Phase.DRAINING: LivenessReason.SHUTDOWN_IN_PROGRESS,
    Phase.STOPPING: LivenessReason.SHUTDOWN_IN_PROGRESS,
    Phase.STOPPED: LivenessReason.SHUTDOWN_COMPLETE,
}
_START_PHASES = (Phase.LAUNCHING, Phase.STARTING)
_RUNNING_PHASES = (*_START_PHASES, Phase.READY, Phase.ENDING, Phase.BACKOFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Start the next run after ``delay`` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The restart budget is used up: wait for an operator."""


@dataclass(frozen=True, slots=True)
class StayStopped:
    """Stay stopped."""


Next = Restart | GiveUp | StayStopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """When the answer and the reason of a probe last changed."""

    answer: datetime
    reason: datetime


class Machine:
    """The state of one worker; each event returns what to do next."""

    def __init__(
        self,
        *,
        backoff: Backoff,
        budget: RestartBudget,
        stable_seconds: float,
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._backoff, self._budget, self._stable = backoff, budget, stable_seconds
        self._clock, self._chance = clock, chance
        self.phase = Phase.NEW
        self.pid: int | None = None
        self.generation = 0
        self.restarts = 0
        self.handshake: Mapping[str, Any] | None = None
        self.last_exit: WorkerExit | None = None
        self.last_ready_at: datetime | None = None
        self.startup_ms: float | None = None
        self.next_delay: float | None = None
        self.error: str | None = None
        self._failures = 0
        self._launched = 0.0
        self._ready_since: float | None = None
        self._phase_reason = ReadinessReason.WORKER_EXIT  # the reason in the phases ending, backoff, failed
        now = clock.wall()
        self.readiness_since = self.liveness_since = Since(answer=now, reason=now)

    # -- events ---------------------------------------------------------------------------------------------

    def launching(self) -> None:
        """A start begins."""
        self.generation += 1
        self._launched, self.next_delay, self.handshake = self._clock.monotonic(), None, None
        self._enter(Phase.LAUNCHING)

    def spawned(self, pid: int) -> None:
        """The process exists."""
        self.pid = pid
        if self.phase is Phase.LAUNCHING:
            self._enter(Phase.STARTING)

    def ready(self, details: Mapping[str, Any]) -> None:
        """It takes requests."""
        if self.phase is not Phase.STARTING:
            return  # it became ready while it was ending or being stopped
        self._ready_since, self.last_ready_at = self._clock.monotonic(), self._clock.wall()
        self.startup_ms = round((self._ready_since - self._launched) * 1000, 3)
        self.handshake, self.error = dict(details), None
        self._enter(Phase.READY)

    def ending(self, reason: ReadinessReason, error: str | None = None) -> None:
        """Its process begins to end, or is being replaced."""
        self._forget_old_failures()
        self._ready_since = None
        self.error = error or self.error
        if self.phase in (*_START_PHASES, Phase.READY):
            self._phase_reason = reason
            self._enter(Phase.ENDING)

    def exited(self, exit: WorkerExit, *, replacement_requested: bool) -> Next:
        """Its tree is empty, or it could not be started."""
        self.ending(ReadinessReason.WORKER_EXIT, exit.error)
        self.pid, self.last_exit = None, exit
        if self.phase in (Phase.DRAINING, Phase.STOPPING, Phase.STOPPED):
            return StayStopped()
        if replacement_requested:
            return self._schedule_restart(0.0)
        self._failures += 1
        if not self._budget.spend(self._clock.monotonic()):
            self._enter(Phase.FAILED)
            return GiveUp()
        return self._schedule_restart(self._backoff.delay(self._failures, self._chance()))

    def _schedule_restart(self, delay: float) -> Restart:
        self.restarts += 1
        self.next_delay = delay
        self._enter(Phase.BACKOFF)
        return Restart(delay=delay)

    def reset(self) -> None:
        """Reset by an operator: forget all failures; a failed worker may start again."""
        self._failures = 0
        self._budget.refill()
        if self.phase in (Phase.FAILED, Phase.STOPPED):
            self.next_delay = 0.0
            self._enter(Phase.BACKOFF)

    def drain(self) -> None:
        """From now on it takes no new requests."""
        if self.phase not in (Phase.STOPPING, Phase.STOPPED):
            self._enter(Phase.DRAINING)

    def stopping(self) -> None:
        """It is being ended without a successor."""
        if self.phase is not Phase.STOPPED:
            self._enter(Phase.STOPPING)

    def stopped(self) -> None:
        """It has ended, and no process is left."""
        self.pid = self.next_delay = None
        self._enter(Phase.STOPPED)

    # -- state -----------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether requests may go to it."""
        return self.phase is Phase.READY

    @property
    def is_running(self) -> bool:
        """Whether a process exists, or will be started without an operator."""
        return self.phase in _RUNNING_PHASES or (
            self.phase in (Phase.DRAINING, Phase.STOPPING) and self.pid is not None
        )

    @property
    def live(self) -> bool:
        """Whether it runs, is being stopped, or will be started again without an operator."""
        return self.phase in (*_RUNNING_PHASES, Phase.DRAINING, Phase.STOPPING)

    @property
    def failures(self) -> int:
        """The number of consecutive failures; stable uptime resets it."""
        self._forget_old_failures()
        return self._failures

    @property
    def readiness(self) -> ReadinessReason:
        """The reason for ``is_ready``."""
        return _READINESS.get(self.phase, self._phase_reason)

    @property
    def liveness(self) -> LivenessReason:
        """The reason for ``live``."""
        return _liveness(self.phase, again=self._failures > 0)

    def _forget_old_failures(self) -> None:
        """Reset failures and budget after stable uptime."""
        if self._ready_since is not None and self._clock.monotonic() - self._ready_since >= self._stable:
            self._failures = 0
            self._budget.refill()

    def _enter(self, phase: Phase) -> None:
        ready, live = (self.is_ready, self.readiness), (self.live, self.liveness)
        self.phase = phase
        now = self._clock.wall()
        self.readiness_since = _since(self.readiness_since, now, ready, (self.is_ready, self.readiness))
        self.liveness_since = _since(self.liveness_since, now, live, (self.live, self.liveness))


def _liveness(phase: Phase, *, again: bool) -> LivenessReason:
    if phase in _START_PHASES and not again:
        return LivenessReason.WORKER_STARTING
    return _LIVENESS.get(phase, LivenessReason.WORKER_RESTARTING)


def _since(before: Since, now: datetime, was: tuple[bool, str], is_now: tuple[bool, str]) -> Since:
    return Since(answer=before.answer if was[0] == is_now[0] else now, reason=before.reason if was == is_now else now)
