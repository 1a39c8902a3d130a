"""Runs: sessions with one command each, many in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from debug_server.errors import QueueFullError
from debug_server.model import Claim, Command, DueTime, NewCommand, NewEvent, Notice, SessionPlan
from debug_server.store import commands, event_log, schedules, session_claims, sessions
from debug_server.store.command_draft import CommandDraft
from debug_server.store.commands import PENDING, check_queue_limits
from debug_server.store.connection import Transaction
from debug_server.store.encoding import mapping_text
from debug_server.store.sessions import SessionDraft
from debug_server.store.table import Table, require


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDraft:
    """A session and its one command, checked and encoded before the transaction."""

    command: CommandDraft
    session: SessionDraft
    repository_id: int | None
    claims: Sequence[Claim]
    secrets: Mapping[str, str]  # sealed until ``drop_secrets``
    refused: Callable[[str], NewEvent] | None  # the event to add instead when a queue is full; None: QueueFullError

    @classmethod
    def of(
        cls,
        *,
        session_plan: SessionPlan | None = None,
        session_metadata: Mapping[str, Any] | None = None,
        repository_id: int | None = None,
        requested_by: str | None = None,
        owner_token_id: int | None = None,
        claims: Sequence[Claim] = (),
        secrets: Mapping[str, str] | None = None,
        refused: Callable[[str], NewEvent] | None = None,
        **command: Unpack[NewCommand],
    ) -> RunDraft:
        """The fields of the session, and the arguments of ``CommandDraft.of``."""
        return cls(
            command=CommandDraft.of(**command),
            session=SessionDraft.of(
                repository_id=repository_id,
                requested_by=requested_by,
                owner_token_id=owner_token_id,
                plan=session_plan,
                metadata=session_metadata,
            ),
            repository_id=repository_id,
            claims=claims,
            secrets=secrets or {},
            refused=refused,
        )


class Runs(Table):
    """Sessions that exist for one command."""

    def add(
        self, steps: Sequence[RunDraft | NewEvent], *, due: DueTime | None = None
    ) -> list[Command | NewEvent] | None:
        """Add runs and events in one commit: all of them or none. Returns the commands and the events.

        A run whose queue is full becomes the event that its ``refused`` returns. ConflictError when a claim is taken.
        With ``due`` the same commit marks that time as done; None if another process did that first.
        """
        runs = [step for step in steps if isinstance(step, RunDraft)]
        claims = [claim for run in runs for claim in run.claims]
        with self._database.write() as transaction:
            if claims:
                session_claims.check(transaction, claims)
            if any(run.command.max_pending is not None for run in runs):
                transaction.lock("queue")
            now = self._now()
            if due is not None and not schedules.take(transaction, now, due):
                return None
            added = [self._add_step(transaction, now, step) for step in steps]
        for item in added:
            self._notify(_notice(item))
        return added

    def _add_step(self, transaction: Transaction, now: float, step: RunDraft | NewEvent) -> Command | NewEvent:
        if isinstance(step, RunDraft):
            try:
                check_queue_limits(transaction, step.command)
            except QueueFullError as error:
                if step.refused is None:
                    raise
                step = step.refused(str(error))
            else:
                return self._add_run(transaction, now, step)
        text = mapping_text(step.data, what="event data")
        event_log.append(transaction, now, step.kind, text, subject=step.subject)
        return step

    def _add_run(self, transaction: Transaction, now: float, run: RunDraft) -> Command:
        require(transaction, "repositories", "repository", run.repository_id)
        session = sessions.insert(transaction, now, run.session)
        session_claims.insert(transaction, session.id, run.claims)
        if run.secrets:
            sessions.seal_secrets(transaction, self._sealer, session.id, run.secrets)
        return commands.insert(transaction, now, self._sealer, session.id, run.command)


def _notice(added: Command | NewEvent) -> Notice:
    if isinstance(added, NewEvent):
        return Notice(added.kind)
    return Notice(PENDING, added.session_id, added.id, waits=added.owner is None)
