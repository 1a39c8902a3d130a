"""Runs: commands in sessions of their own, many in one commit."""

from __future__ import annotations

from collections.abc import Sequence

from debug_server.errors import QueueFullError
from debug_server.model import Command, DueTime, NewEvent, Notice
from debug_server.store import claims as claims_table
from debug_server.store import commands, event_log, schedules, sessions
from debug_server.store.commands import PENDING, check_room
from debug_server.store.connection import Transaction
from debug_server.store.encoding import mapping_text
from debug_server.store.run_draft import RunDraft
from debug_server.store.table import Table, require


class Runs(Table):
    """Sessions that exist for one command."""

    def add(
        self, steps: Sequence[RunDraft | NewEvent], *, due: DueTime | None = None
    ) -> list[Command | NewEvent] | None:
        """Queue runs and tell events in one commit: all of them or none. Returns the commands, and what was told.

        A run whose queue is full is told of as its ``refused`` says. ConflictError when a claim is taken. With ``due``
        that time is taken in the same commit, or None: another process did and nothing is done here.
        """
        runs = [step for step in steps if isinstance(step, RunDraft)]
        claims = [claim for run in runs for claim in run.claims]
        with self._database.write() as transaction:
            if claims:
                claims_table.check(transaction, claims)
            if any(run.command.bound is not None for run in runs):
                transaction.lock("queue")
            now = self._now()
            if due is not None and not schedules.take(transaction, now, due):
                return None
            added = [self._add_step(transaction, now, step) for step in steps]
        for item in added:
            self._announce(_notice(item))
        return added

    def _add_step(self, transaction: Transaction, now: float, step: RunDraft | NewEvent) -> Command | NewEvent:
        if isinstance(step, RunDraft):
            try:
                check_room(transaction, step.command)
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
        claims_table.insert(transaction, session.id, run.claims)
        if run.secrets:
            sessions.seal_secrets(transaction, self._sealer, session.id, run.secrets)
        return commands.insert(transaction, now, self._sealer, session.id, run.command)


def _notice(added: Command | NewEvent) -> Notice:
    if isinstance(added, NewEvent):
        return Notice(added.kind)
    return Notice(PENDING, added.session_id, added.id, waits=added.owner is None)
