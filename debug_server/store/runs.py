"""Runs: adds sessions with one command each, several in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from debug_server.errors import QueueFullError
from debug_server.model import Command, DueTime, NewEvent, Notice, QueuedRun
from debug_server.store import commands, event_log, keyed_requests, schedules, session_claims, sessions
from debug_server.store.command_draft import CommandDraft
from debug_server.store.commands import PENDING, check_queue_limits
from debug_server.store.connection import Transaction
from debug_server.store.encoding import mapping_text
from debug_server.store.sessions import SessionDraft
from debug_server.store.table import Table, require


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunDraft:
    """A run that was checked and encoded, before the transaction."""

    run: QueuedRun
    command: CommandDraft
    session: SessionDraft

    @classmethod
    def of(cls, run: QueuedRun, max_pending: int | None, claim_owner: str | None = None) -> _RunDraft:
        return cls(
            run=run,
            command=CommandDraft.of(
                **run.spec.to_columns(closes_session=True, artifacts=run.artifacts),
                priority=run.priority,
                queue_key=run.queue_key,
                key_limit=run.key_limit,
                key_max_pending=run.key_max_pending,
                order_key=run.order_key,
                idempotency_key=run.idempotency_key,
                subject=run.subject,
                metadata=run.metadata,
                claim_owner=claim_owner,
                in_turn=True,
                max_pending=max_pending,
            ),
            session=SessionDraft.of(
                repository_id=run.repository_id,
                requested_by=run.requested_by,
                owner_token_id=run.owner_token_id,
                idempotency_key=run.idempotency_key,
                plan=run.session_plan,
                metadata=run.session_metadata,
            ),
        )


class Runs(Table):
    """Sessions that exist for one command."""

    def add(
        self, steps: Sequence[QueuedRun | NewEvent], *, max_pending: int | None = None, due: DueTime | None = None
    ) -> list[Command | NewEvent] | None:
        """Add runs and events in one commit: all of them or none. Returns the commands and the events.

        A run whose queue is full, or for which ``max_pending`` commands wait already, becomes the event that its
        ``refused`` returns. ConflictError when a claim is taken. With ``due`` the same commit claims that time; None
        if another process has claimed it.
        """
        checked = [_RunDraft.of(step, max_pending) if isinstance(step, QueuedRun) else step for step in steps]
        return self._add(checked, due)

    def add_one(self, run: QueuedRun, *, max_pending: int | None = None, claim_owner: str | None = None) -> Command:
        """Add a run; with ``claim_owner`` it is claimed at once (attempt 1) if it can start now."""
        (added,) = self._add([_RunDraft.of(run, max_pending, claim_owner)], None) or []
        assert isinstance(added, Command)  # the one step is a run that no event replaces
        return added

    def _add(self, checked: Sequence[_RunDraft | NewEvent], due: DueTime | None) -> list[Command | NewEvent] | None:
        runs = [step for step in checked if isinstance(step, _RunDraft)]
        claims = [claim for item in runs for claim in item.run.claims]
        with self._database.write() as transaction:
            now = self._now()
            for item in runs:
                if item.run.request is not None:
                    keyed_requests.begin_with(transaction, now, item.run.request)
            if claims:
                session_claims.check(transaction, claims)
            if any(item.command.max_pending is not None for item in runs):
                transaction.lock("queue")
            if due is not None and not schedules.claim(transaction, now, due):
                return None
            added = [self._add_step(transaction, now, step) for step in checked]
        for done in added:
            self._notify(_notice(done))
        return added

    def _add_step(self, transaction: Transaction, now: float, step: _RunDraft | NewEvent) -> Command | NewEvent:
        if isinstance(step, _RunDraft):
            try:
                check_queue_limits(transaction, step.command)
            except QueueFullError as error:
                if step.run.event_if_full is None:
                    raise
                step = step.run.event_if_full(str(error))
            else:
                return self._add_run(transaction, now, step)
        text = mapping_text(step.data, what="event data")
        event_log.append(transaction, now, step.kind, text, subject=step.subject)
        return step

    def _add_run(self, transaction: Transaction, now: float, checked: _RunDraft) -> Command:
        run = checked.run
        require(transaction, "repositories", "repository", run.repository_id)
        session = sessions.insert(transaction, now, checked.session)
        session_claims.insert(transaction, session.id, run.claims)
        if run.secrets:
            sessions.seal_secrets(transaction, self._sealer, session.id, run.secrets)
        draft = commands.claimed_in_turn(transaction, session.id, checked.command)
        command = commands.insert(transaction, now, self._sealer, session.id, draft)
        if run.request is not None:
            keyed_requests.answer_with(transaction, self._sealer, run.request, command)
        return command


def _notice(added: Command | NewEvent) -> Notice:
    if isinstance(added, NewEvent):
        return Notice(added.kind)
    return Notice(PENDING, added.session_id, added.id, waits=added.owner is None)
