"""Backoff, budget and the state machine, against a clock that tests move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from debug_server.workers.backoff import Backoff, RestartBudget
from debug_server.workers.interface import WorkerExit
from debug_server.workers.state import GiveUp, LivenessReason, Machine, Phase, ReadinessReason, Restart, StayStopped

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
INITIAL, MAXIMUM, LIMIT, WINDOW, STABLE = 0.5, 5.0, 4, 600.0, 60.0
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # however busy the machine is
seconds = st.floats(min_value=0.0, max_value=1000.0)


class FakeClock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return BEGIN + timedelta(seconds=self.now)


def an_exit(clock: FakeClock) -> WorkerExit:
    return WorkerExit(at=clock.wall(), code=1, signal=None, error=None, reason="nonzero_exit")


@steady
@given(st.integers(min_value=1, max_value=10_000), st.floats(min_value=0, max_value=1, exclude_max=True))
def test_a_wait_is_geometric_capped_and_never_longer_than_without_chance(failures: int, chance: float) -> None:
    """500, 1000, 2000, 4000, 5000, 5000 ms, of which chance takes at most a fifth."""
    backoff = Backoff(initial=INITIAL, maximum=MAXIMUM)
    whole = backoff.delay(failures, 0.0)
    assert whole == min(MAXIMUM, INITIAL * 2 ** min(failures - 1, 10))
    assert whole * 0.8 <= backoff.delay(failures, chance) <= whole
    assert backoff.delay(failures + 1, 0.0) >= whole


@steady
@given(st.lists(seconds, max_size=60), st.integers(min_value=0, max_value=8), st.floats(min_value=1, max_value=500))
def test_no_window_holds_more_restarts_than_the_limit(steps: list[float], limit: int, window: float) -> None:
    """Whatever the moments, and a restart is refused only where the window is full."""
    budget = RestartBudget(limit=limit, window=window)
    now = 0.0
    spent: list[float] = []
    for step in steps:
        now += step
        recent = [moment for moment in spent if moment > now - window]
        assert budget.left(now) == limit - len(recent)
        assert budget.spend(now) == (len(recent) < limit)
        if len(recent) < limit:
            spent.append(now)
    budget.refill()
    assert budget.left(now) == limit


class WorkerModel(RuleBasedStateMachine):
    """Anything may happen to a worker in any order that its supervisor allows."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.machine = Machine(
            backoff=Backoff(initial=INITIAL, maximum=MAXIMUM),
            budget=RestartBudget(limit=LIMIT, window=WINDOW),
            stable_seconds=STABLE,
            clock=self.clock,
            chance=lambda: 0.0,
        )
        self.restarts = self.failures = 0
        self.ready_at: float | None = None
        self.leaving = False

    @rule(step=seconds)
    def time_passes(self, step: float) -> None:
        self.clock.now += step
        if self.ready_at is not None and self.clock.now - self.ready_at >= STABLE:
            self.failures = 0

    @precondition(lambda self: self.machine.phase in (Phase.NEW, Phase.BACKOFF))
    @rule()
    def is_launched(self) -> None:
        self.machine.launching()
        assert (self.machine.phase, self.machine.next_delay) == (Phase.LAUNCHING, None)

    @precondition(lambda self: self.machine.phase is Phase.LAUNCHING)
    @rule()
    def is_spawned(self) -> None:
        self.machine.spawned(4711)
        assert self.machine.readiness is ReadinessReason.HANDSHAKE_PENDING

    @precondition(lambda self: self.machine.pid is not None)
    @rule()
    def says_ready(self) -> None:
        before = self.machine.phase
        self.machine.ready({"version": "1"})
        if before is Phase.STARTING:
            self.ready_at = self.clock.now
            assert self.machine.startup_ms is not None and self.machine.startup_ms >= 0

    @precondition(lambda self: self.machine.pid is not None)
    @rule(error=st.sampled_from([None, "no answer"]))
    def fails(self, error: str | None) -> None:
        self.machine.ending(ReadinessReason.HANDSHAKE_FAILED, error)
        self.ready_at = None
        assert not self.machine.is_ready

    @precondition(lambda self: self.machine.phase in (Phase.LAUNCHING, Phase.STARTING, Phase.READY, Phase.ENDING))
    @rule(replacement_requested=st.booleans())
    def exits(self, replacement_requested: bool) -> None:
        following = self.machine.exited(an_exit(self.clock), replacement_requested=replacement_requested)
        self.ready_at = None
        if replacement_requested:
            assert following == Restart(delay=0.0)
            self.restarts += 1
            return
        self.failures += 1
        assert self.machine.failures == self.failures
        if isinstance(following, GiveUp):
            assert self.machine.phase is Phase.FAILED and self.failures > LIMIT
        else:
            assert following == Restart(delay=min(MAXIMUM, INITIAL * 2 ** min(self.failures - 1, 10)))
            self.restarts += 1

    @precondition(lambda self: self.machine.phase in (Phase.DRAINING, Phase.STOPPING) and self.machine.pid is not None)
    @rule()
    def exits_when_told(self) -> None:
        assert self.machine.exited(an_exit(self.clock), replacement_requested=False) == StayStopped()

    @rule()
    def is_reset(self) -> None:
        before = self.machine.phase
        self.machine.reset()
        self.failures = 0
        assert self.machine.phase is (Phase.BACKOFF if before in (Phase.FAILED, Phase.STOPPED) else before)

    @rule()
    def is_drained(self) -> None:
        self.machine.drain()
        self.ready_at = None

    @precondition(lambda self: self.machine.phase is Phase.DRAINING)
    @rule()
    def is_stopping(self) -> None:
        self.machine.stopping()

    @precondition(lambda self: self.machine.phase in (Phase.DRAINING, Phase.STOPPING) and self.machine.pid is None)
    @rule()
    def is_stopped(self) -> None:
        self.machine.stopped()
        assert self.machine.liveness is LivenessReason.SHUTDOWN_COMPLETE

    @invariant()
    def counts_are_exact(self) -> None:
        assert self.machine.restarts == self.restarts

    @invariant()
    def ready_has_one_reason(self) -> None:
        machine = self.machine
        assert machine.is_ready == (machine.readiness is ReadinessReason.HANDSHAKE_COMPLETE)
        assert machine.is_ready <= (machine.pid is not None and machine.live and machine.is_running)

    @invariant()
    def given_up_means_dead(self) -> None:
        machine = self.machine
        assert (machine.phase is Phase.FAILED) == (machine.liveness is LivenessReason.RESTART_LIMIT_EXCEEDED)
        if machine.phase in (Phase.NEW, Phase.FAILED, Phase.STOPPED):
            assert not machine.live and not machine.is_running

    @invariant()
    def changes_are_dated(self) -> None:
        for since in (self.machine.readiness_since, self.machine.liveness_since):
            assert since.answer <= since.reason <= self.clock.wall()


TestWorkerModel = WorkerModel.TestCase
TestWorkerModel.settings = steady


def test_the_row_of_failures_ends_with_stable_uptime() -> None:
    """Four failures, then a minute of work: the next wait is the first again and the budget is whole."""
    clock = FakeClock()
    machine = Machine(
        backoff=Backoff(initial=INITIAL, maximum=MAXIMUM),
        budget=RestartBudget(limit=LIMIT, window=WINDOW),
        stable_seconds=STABLE,
        clock=clock,
        chance=lambda: 0.0,
    )
    delays = []
    for uptime in [0.0] * LIMIT + [STABLE] + [0.0] * LIMIT:
        machine.launching()
        machine.spawned(1)
        machine.ready({})
        clock.now += uptime
        following = machine.exited(an_exit(clock), replacement_requested=False)
        delays.append(following.delay if isinstance(following, Restart) else None)
    assert delays == [0.5, 1.0, 2.0, 4.0, 0.5, 1.0, 2.0, 4.0, None]
