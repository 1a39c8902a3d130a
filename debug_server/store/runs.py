"""A command in a session of its own, both in one commit; commands by subject; what a session keeps sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from debug_server.errors import NotFoundError
from debug_server.model import Claim, Command, Notice, Session
from debug_server.store import claims as claims_table
from debug_server.store.command_draft import Draft
from debug_server.store.command_rows import COLUMNS, command_from
from debug_server.store.commands import PENDING, Commands
from debug_server.store.encoding import mapping_text
from debug_server.store.part import filters, found, require
from debug_server.store.sessions import Sessions

_BY_SUBJECT = f"SELECT {COLUMNS} FROM commands WHERE subject = ? ORDER BY id DESC LIMIT 1"
_QUALIFIED = ", ".join(f"commands.{name.strip()}" for name in COLUMNS.split(","))


class Runs(Sessions, Commands):
    """Sessions that exist for one command."""

    def add_run(
        self,
        *,
        session_metadata: Mapping[str, Any],
        repository_id: int | None = None,
        requested_by: str | None,
        owner_token_id: int | None,
        claims: Sequence[Claim] = (),
        secrets: Mapping[str, str] | None = None,
        **command: Any,
    ) -> tuple[Session, Command]:
        """Open a session and queue its command (the arguments of ``add_command``); ConflictError when a claim is taken.

        ``secrets`` are sealed until ``drop_secrets``.
        """
        text = mapping_text(session_metadata, what="session metadata")
        draft = Draft.of(**command)
        with self._database.write() as transaction:
            if claims:
                claims_table.check(transaction, claims)
            if draft.bound is not None:
                transaction.lock("queue")
            now = self._now()
            require(transaction, "repositories", "repository", repository_id)
            values = (repository_id, None, "pending", None, None, requested_by, owner_token_id, None)
            session = self._insert_session(transaction, now, values, text)
            claims_table.insert(transaction, session.id, claims)
            if secrets:
                sealed = self._sealer.seal(secrets, _place(session.id))
                transaction.run("UPDATE sessions SET sealed_secrets = ? WHERE id = ?", (sealed, session.id))
            row = self._insert_command(transaction, now, session.id, draft)
        self._announce(Notice(PENDING, session.id, row.id, waits=row.owner is None))
        return session, row

    def newest_about(self, subject: str) -> Command:
        """The newest command of that subject, or NotFoundError."""
        row = self._one(_BY_SUBJECT, (subject,))
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
        sql = (
            f"SELECT {_QUALIFIED} FROM commands JOIN sessions ON sessions.id = commands.session_id"
            f" WHERE commands.subject IS NOT NULL AND {terms} ORDER BY commands.id LIMIT ?"
        )
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


def _place(session_id: int) -> str:
    return f"session {session_id}"
