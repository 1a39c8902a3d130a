"""The store against the pure state machine: random lives of commands, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from debug_server.errors import ConflictError
from debug_server.model import CommandStatus, ExitReason, ExitRecord, check_transition, status_for
from debug_server.store import MetadataStore

OWNERS = st.sampled_from(["one", "two"])
REASONS = st.sampled_from([ExitReason.EXITED, ExitReason.NONZERO_EXIT, ExitReason.CANCELLED, ExitReason.LOST])
PICK = st.integers(0, 5)
OFF = st.sampled_from([0, 0, 0, 1])


@dataclass
class Expected:
    """What a command should be by now."""

    id: int
    status: CommandStatus = CommandStatus.PENDING
    attempt: int = 0
    owner: str | None = None
    cancel: bool = False
    priority: int = 0

    def allows(self, after: CommandStatus, attempt: int, owner: str) -> bool:
        try:
            check_transition(self.status, after)
        except ConflictError:
            return False
        return (self.attempt, self.owner) == (attempt, owner)


class Lives(RuleBasedStateMachine):
    """Commands of one session, each with a model beside it."""

    store: MetadataStore

    def __init__(self) -> None:
        super().__init__()
        self.session = self.store.sessions.create().id
        self.known: list[Expected] = []

    def pick(self, number: int) -> Expected:
        return self.known[number % len(self.known)]

    @precondition(lambda self: len(self.known) < 6)
    @rule(owner=st.none() | OWNERS, priority=st.integers(-1, 1))
    def add(self, owner: str | None, priority: int) -> None:
        command = self.store.commands.add(
            session_id=self.session, argv=["x"], claim_owner=owner, priority=priority, key_limit=2
        )
        self.known.append(Expected(command.id, attempt=0 if owner is None else 1, owner=owner, priority=priority))

    @rule(owner=OWNERS)
    def claim(self, owner: str) -> None:
        waiting = [item for item in self.known if item.owner is None and not item.status.terminal]
        held = [item for item in self.known if item.owner is not None and not item.status.terminal]
        best = min(waiting, key=lambda item: (-item.priority, item.id), default=None)
        command = self.store.queue.claim_next(owner, session_id=self.session)
        if best is None or len(held) >= 2:
            assert command is None
            return
        assert command is not None and command.id == best.id
        best.attempt, best.owner = best.attempt + 1, owner

    @precondition(lambda self: self.known)
    @rule(number=PICK, owner=OWNERS, off=OFF)
    def start(self, number: int, owner: str, off: int) -> None:
        item = self.pick(number)
        attempt = item.attempt + off
        allowed = item.allows(CommandStatus.RUNNING, attempt, owner)
        try:
            self.store.commands.start(item.id, attempt=attempt, owner=owner, handle={}, log_path="/l")
        except ConflictError:
            assert not allowed
        else:
            assert allowed
            item.status = CommandStatus.RUNNING

    @precondition(lambda self: self.known)
    @rule(number=PICK, owner=OWNERS, off=OFF, reason=REASONS)
    def finish(self, number: int, owner: str, off: int, reason: ExitReason) -> None:
        item = self.pick(number)
        attempt = item.attempt + off
        allowed = item.allows(status_for(reason), attempt, owner)
        try:
            self.store.commands.finish(item.id, attempt=attempt, owner=owner, record=ExitRecord(reason=reason))
        except ConflictError:
            assert not allowed
        else:
            assert allowed
            item.status = status_for(reason)

    @precondition(lambda self: self.known)
    @rule(number=PICK)
    def cancel(self, number: int) -> None:
        item = self.pick(number)
        self.store.commands.request_cancel(item.id)
        if item.status.terminal:
            return
        item.cancel = True
        if item.owner is None:
            item.status = CommandStatus.CANCELLED

    @precondition(lambda self: self.known)
    @rule(number=PICK, owner=OWNERS)
    def requeue(self, number: int, owner: str) -> None:
        item = self.pick(number)
        done = self.store.queue.requeue(item.id, attempt=item.attempt, owner=owner)
        assert done == (item.status is CommandStatus.PENDING and item.owner == owner)
        if done:
            item.owner = None
            item.status = CommandStatus.CANCELLED if item.cancel else CommandStatus.PENDING

    @precondition(lambda self: self.known)
    @rule(number=PICK, owner=OWNERS, new=OWNERS)
    def take_over(self, number: int, owner: str, new: str) -> None:
        item = self.pick(number)
        done = self.store.queue.take_over(item.id, attempt=item.attempt, owner=owner, new_owner=new)
        assert done == (not item.status.terminal and item.owner == owner)
        if done:
            item.owner = new

    @invariant()
    def the_store_agrees(self) -> None:
        for item, command in zip(self.known, self.store.commands.in_session(self.session), strict=True):
            real = (command.id, command.status, command.attempt, command.owner, command.cancel_requested)
            assert real == (item.id, item.status, item.attempt, item.owner, item.cancel)
            assert (command.finished_at is not None) == (command.exit is not None) == item.status.terminal


@pytest.mark.timeout(300)  # thousands of transactions, on a machine that may be busy
def test_the_store_follows_the_model(store: MetadataStore) -> None:
    """No sequence of calls, right or wrong, takes a command where the pure state machine does not."""
    machine = type("LivesInThisStore", (Lives,), {"store": store})
    bounds = settings(
        max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    run_state_machine_as_test(machine, settings=bounds)
