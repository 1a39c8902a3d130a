"""Commands in sessions of their own, many in one commit; commands by subject; what a session keeps sealed."""

from __future__ import annotations

from collections.abc import Sequence

from debug_server.errors import NotFoundError, QueueFullError
from debug_server.model import Command, DueTime, NewEvent, Notice
from debug_server.store import claims as claims_table
from debug_server.store import event_log, schedules
from debug_server.store.command_rows import COLUMNS, command_from
from debug_server.store.commands import PENDING, Commands, check_room
from debug_server.store.connection import Transaction
from debug_server.store.encoding import mapping_text
from debug_server.store.part import filters, found, require
from debug_server.store.run_draft import RunDraft
from debug_server.store.sessions import Sessions

_QUALIFIED = ", ".join(f"commands.{name.strip()}" for name in COLUMNS.split(","))
_WITH_SESSION = f"SELECT {_QUALIFIED} FROM commands JOIN sessions ON sessions.id = commands.session_id"


class Runs(Sessions, Commands):
    """Sessions that exist for one command."""

    def add_together(
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
            added = [self._add(transaction, now, step) for step in steps]
        for item in added:
            self._announce(_notice(item))
        return added

    def _add(self, transaction: Transaction, now: float, step: RunDraft | NewEvent) -> Command | NewEvent:
        if isinstance(step, RunDraft):
            try:
                check_room(transaction, step.command)
            except QueueFullError as error:
                if step.refused is None:
                    raise
                step = step.refused(str(error))
            else:
                return self._insert_run(transaction, now, step)
        text = mapping_text(step.data, what="event data")
        event_log.append(transaction, now, step.kind, text, subject=step.subject)
        return step

    def _insert_run(self, transaction: Transaction, now: float, run: RunDraft) -> Command:
        require(transaction, "repositories", "repository", run.repository_id)
        values = (run.repository_id, None, "pending", None, None, run.requested_by, run.owner_token_id, None)
        session = self._insert_session(transaction, now, values, run.session_metadata)
        claims_table.insert(transaction, session.id, run.claims)
        if run.secrets:
            sealed = self._sealer.seal(run.secrets, _place(session.id))
            transaction.run("UPDATE sessions SET sealed_secrets = ? WHERE id = ?", (sealed, session.id))
        return self._insert_command(transaction, now, session.id, run.command)

    def newest_about(self, subject: str, *, owner_token_id: int | None = None) -> Command:
        """The newest command of that subject, of one owner if asked, or NotFoundError."""
        terms, params = filters(("commands.subject = ?", subject), ("sessions.owner_token_id = ?", owner_token_id))
        row = self._one(f"{_WITH_SESSION} WHERE {terms} ORDER BY commands.id DESC LIMIT 1", params)
        if row is None:
            raise NotFoundError(f"there is no command about {subject!r}")
        return command_from(row)

    def list_about(
        self, prefix: str, *, owner_token_id: int | None = None, after: int = 0, limit: int = 100
    ) -> list[Command]:
        """Commands whose subject begins with ``prefix``, with an id above ``after``, oldest first."""
        terms, params = filters(
            ("commands.id > ?", after),
            ("substr(commands.subject, 1, length(CAST(? AS TEXT))) = ?", prefix, prefix),
            ("sessions.owner_token_id = ?", owner_token_id),
        )
        sql = f"{_WITH_SESSION} WHERE commands.subject IS NOT NULL AND {terms} ORDER BY commands.id LIMIT ?"
        return [command_from(row) for row in self._all(sql, (*params, limit))]

    def read_secrets(self, session_id: int) -> dict[str, str]:
        """What the session keeps sealed; empty when there is nothing, or nothing more."""
        row = self._one("SELECT sealed_secrets FROM sessions WHERE id = ?", (session_id,))
        (sealed,) = found(row, "session", session_id)
        return {} if sealed is None else self._sealer.unseal(bytes(sealed), _place(session_id))

    def drop_secrets(self, session_id: int) -> None:
        """Forget them."""
        with self._database.write() as transaction:
            transaction.run("UPDATE sessions SET sealed_secrets = NULL WHERE id = ?", (session_id,))


def _notice(added: Command | NewEvent) -> Notice:
    if isinstance(added, NewEvent):
        return Notice(added.kind)
    return Notice(PENDING, added.session_id, added.id, waits=added.owner is None)


def _place(session_id: int) -> str:
    return f"session {session_id}"
