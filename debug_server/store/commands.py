"""The commands table: from pending to one terminal state, each step a compare-and-set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Unpack

from debug_server.errors import ConflictError, InvalidInputError, NotFoundError, QueueFullError
from debug_server.model import (
    Command,
    CommandSearch,
    CommandStatus,
    ExitReason,
    ExitRecord,
    FoundCommand,
    NewCommand,
    Notice,
    RequestKey,
    status_for,
)
from debug_server.store import artifacts, event_log, keyed_requests
from debug_server.store.command_draft import CommandDraft
from debug_server.store.command_rows import (
    COLUMNS,
    command_from,
    conflict,
    exit_text,
)
from debug_server.store.command_search import AWAITED, found_from, search_sql
from debug_server.store.connection import Row, Transaction
from debug_server.store.encoding import decode, mapping_text, optional_moment
from debug_server.store.sealing import Sealer
from debug_server.store.table import ALL_ROWS, Table, filters, keyset, page_of, require_row

PENDING, STARTED, FINISHED = "command.pending", "command.started", "command.finished"  # kinds of events
CANCEL_REQUESTED = "command.cancel_requested"
WAITING = "owner IS NULL AND finished_at IS NULL"
ACTIVE = "owner IS NOT NULL AND finished_at IS NULL"

_IS_UNFINISHED = "status IN ('pending', 'running')"
# "+ 0": SQLite would read every command of the session to have them in the order of its index.
_UNFINISHED = f"SELECT {COLUMNS} FROM commands WHERE session_id = ? AND {_IS_UNFINISHED} ORDER BY sequence + 0"
# Through the open sessions, which are few: a closed one has no unfinished command.
_COUNT_UNFINISHED = (
    f"SELECT COUNT(*) FROM sessions JOIN commands ON commands.session_id = sessions.id AND commands.{_IS_UNFINISHED}"
    f" WHERE sessions.owner_token_id = ? AND sessions.{_IS_UNFINISHED}"
)
_GET = f"SELECT {COLUMNS} FROM commands WHERE id = ?"
_BY_KEY = f"SELECT {COLUMNS} FROM commands WHERE session_id = ? AND idempotency_key = ?"
_INPUTS = "SELECT sealed_env, sealed_stdin, session_id, sequence, status, finished_at FROM commands WHERE id = ?"
_CAN_START_NOW = (
    f"SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM commands WHERE {WAITING})"
    " AND NOT EXISTS (SELECT 1 FROM session_claims WHERE session_id = ? AND waits = 1)"
    f" AND (SELECT COUNT(*) FROM commands WHERE queue_key = ? AND {ACTIVE}) < ?"
)
_SEQUENCE = (
    "SELECT (SELECT COALESCE(MAX(sequence), 0) + 1 FROM commands WHERE session_id = sessions.id),"
    " repository_id, owner_token_id FROM sessions WHERE id = ?"
)
_INSERT = (
    "INSERT INTO commands (session_id, sequence, repository_id, owner_token_id, argv, cwd, env_names, sealed_env,"
    " log_name, limits, status, attempt, owner, priority, queue_key, key_limit, order_key, tty, idempotency_key,"
    " subject, metadata, plan, sealed_stdin, created_at, updated_at)"
    f" VALUES ({', '.join('?' * 25)}) RETURNING {COLUMNS}"
)
_START = (
    "UPDATE commands SET status = 'running', handle = ?, log_path = ?, started_at = ?, updated_at = ?"
    f" WHERE id = ? AND attempt = ? AND owner = ? AND status = 'pending' RETURNING {COLUMNS}"
)
_END = (
    "UPDATE commands SET status = ?, exit_code = ?, exit_reason = ?, exit_record = ?, log_path = COALESCE(?, log_path),"
    " sealed_env = NULL, sealed_stdin = NULL, updated_at = ?,"
    # A command that ended while no server ran is finished by the next one, perhaps days later.
    " finished_at = CASE WHEN started_at + ? < ? THEN started_at + ? ELSE ? END WHERE id = ?"
)
_SET_SESSION_RUNNING = "UPDATE sessions SET status = 'running', updated_at = ? WHERE id = ? AND status = 'pending'"
_CLAIMED = "attempt = ? AND owner = ?"
# A command that never ran cannot succeed, whatever the caller passes.
_FINISH_SUCCEEDED = f"{_END} AND {_CLAIMED} AND status = 'running' RETURNING {COLUMNS}"
_FINISH_OTHER = f"{_END} AND {_CLAIMED} AND finished_at IS NULL RETURNING {COLUMNS}"
_START_AND_FINISH = (
    f"{_END.replace(' SET ', ' SET handle = ?, started_at = ?, ', 1)} AND {_CLAIMED} AND status = 'pending'"
    f" RETURNING {COLUMNS}"
)
_CANCEL_WAITING_ROW = f"{_END} AND {WAITING} RETURNING {COLUMNS}"
_REQUEST_CANCEL = (
    "UPDATE commands SET cancel_requests = cancel_requests + 1, updated_at = ?"
    f" WHERE id = ? AND finished_at IS NULL RETURNING cancel_requests, {COLUMNS}"
)
# The id of the command of a session with this sequence number, or that of the next one; whether the newest are first.
_AT = {
    False: "COALESCE((SELECT id FROM commands WHERE session_id = ? AND sequence <= ?"
    " ORDER BY sequence DESC LIMIT 1), 0)",
    True: f"COALESCE((SELECT id FROM commands WHERE session_id = ? AND sequence >= ?"
    f" ORDER BY sequence LIMIT 1), {ALL_ROWS})",
}
_STDIN = "stdin"
_PREFIX = re.compile("[a-z]+:")
_CANCELLED_WAITING = ExitRecord(reason=ExitReason.CANCELLED, message="cancelled before it was started")


class Commands(Table):
    """Adding, starting, finishing and cancelling commands."""

    def add(self, *, session_id: int, request: RequestKey | None = None, **asked: Unpack[NewCommand]) -> Command:
        """Insert a pending command; with ``claim_owner`` it is claimed at once (attempt 1).

        The same commit answers the ``request``; ConflictError if its key is known.

        A repeated ``idempotency_key`` of the session returns the first command. ``max_pending`` and ``key_max_pending``
        do not apply to a command that is claimed at once.
        """
        draft = CommandDraft.of(**asked)
        with self._database.write() as transaction:
            now = self._now()
            if request is not None:
                keyed_requests.begin_with(transaction, now, request)
            if known := _lock_and_find_repeat(transaction, session_id, asked.get("idempotency_key"), draft):
                return command_from(known)
            draft = claimed_in_turn(transaction, session_id, draft)
            if draft.waits:
                check_queue_limits(transaction, draft)
            command = insert(transaction, now, self._sealer, session_id, draft)
            if request is not None:
                keyed_requests.answer_with(transaction, self._sealer, request, command)
        self._notify(Notice(PENDING, session_id, command.id, waits=command.owner is None))
        return command

    def by_key(self, session_id: int, idempotency_key: str) -> Command | None:
        """The session's command that was added under this key."""
        row = self._one(_BY_KEY, (session_id, idempotency_key))
        return None if row is None else command_from(row)

    def get(self, command_id: int) -> Command:
        """The row, or NotFoundError."""
        return command_from(require_row(self._one(_GET, (command_id,)), "command", command_id))

    def cancel_requested(self, command_id: int) -> bool:
        """Whether its end was requested; NotFoundError without a row."""
        row = self._one("SELECT cancel_requests FROM commands WHERE id = ?", (command_id,))
        return bool(require_row(row, "command", command_id)[0])

    def in_session(
        self,
        session_id: int,
        *,
        status: CommandStatus | None = None,
        after: int = 0,
        limit: int = ALL_ROWS,
        newest: bool = False,
    ) -> list[Command]:
        """A session's commands after a sequence number, in that order or newest first."""
        if status is None:
            beyond, order = keyset("sequence", after, newest=newest)
        else:  # in the order of ids, which is the same and which the index has
            at = (_AT[newest], session_id, after or (ALL_ROWS if newest else 0))
            beyond, order = page_of("status", status.value, at, newest=newest)
        terms, params = filters(("session_id = ?", session_id), beyond)
        rows = self._all(f"SELECT {COLUMNS} FROM commands WHERE {terms} {order} LIMIT ?", (*params, limit))
        return [command_from(row) for row in rows]

    def newest_in_session(self, session_id: int) -> Command | None:
        """The session's last command; None if it has none."""
        return next(iter(self.in_session(session_id, newest=True, limit=1)), None)

    def unfinished(self, session_id: int) -> list[Command]:
        """A session's commands that have not ended, in the order in which they were added."""
        return [command_from(row) for row in self._all(_UNFINISHED, (session_id,))]

    def last_change(self, session_id: int) -> datetime | None:
        """When a command of the session last changed; None if it has none. Reads each of its commands."""
        row = self._one("SELECT MAX(updated_at) FROM commands WHERE session_id = ?", (session_id,))
        return None if row is None else optional_moment(row[0])

    def find(self, search: CommandSearch) -> list[FoundCommand]:
        """Commands over all sessions."""
        return [found_from(row) for row in self._all(*search_sql(search))]

    def awaited_by(self, command_id: int) -> list[int]:
        """The unfinished commands that a waiting command waits for; empty if it waits for a free slot alone."""
        return [row[0] for row in self._all(AWAITED, (command_id,) * AWAITED.count("?"))]

    def inputs(self, command_id: int) -> tuple[dict[str, str], str | None]:
        """The unsealed environment and stdin of a command that has not ended; ConflictError after its end."""
        row = self._one(_INPUTS, (command_id,))
        env, stdin, session_id, sequence, status, finished_at = require_row(row, "command", command_id)
        if finished_at is not None:
            raise ConflictError(f"command {command_id} has {status}: its environment and stdin were removed")
        context = _seal_context(session_id, sequence)
        return (
            {} if env is None else self._sealer.unseal(bytes(env), context),
            None if stdin is None else self._sealer.unseal(bytes(stdin), context)[_STDIN],
        )

    def handle(self, command_id: int) -> dict[str, Any] | None:
        """The keeper's handle, as passed to ``start``; None before."""
        (text,) = require_row(
            self._one("SELECT handle FROM commands WHERE id = ?", (command_id,)), "command", command_id
        )
        return None if text is None else decode(text)

    def start(self, command_id: int, *, attempt: int, owner: str, handle: Mapping[str, Any], log_path: str) -> Command:
        """pending -> running, if (id, attempt, owner) still match; else ConflictError."""
        text = mapping_text(handle, what="keeper handle")
        with self._database.write() as transaction:
            now = self._now()
            row = transaction.one(_START, (text, log_path, now, now, command_id, attempt, owner))
            if row is None:
                raise conflict(_current(transaction, command_id), attempt, owner, "started")
            command = command_from(row)
            _append_start(transaction, now, command)
        self._notify(Notice(STARTED, command.session_id, command_id))
        return command

    def finish(
        self,
        command_id: int,
        *,
        attempt: int,
        owner: str,
        record: ExitRecord,
        log_path: str | None = None,
        handle: Mapping[str, Any] | None = None,
    ) -> Command:
        """Set the one terminal state and the log artifact, if (id, attempt, owner) still match; else ConflictError.

        With ``handle`` the start is recorded too, for a command that ended before it was marked as running.
        """
        status = status_for(record.reason)
        sql = _FINISH_SUCCEEDED if status is CommandStatus.SUCCEEDED else _FINISH_OTHER
        text = None if handle is None else mapping_text(handle, what="keeper handle")
        with self._database.write() as transaction:
            now = self._now()
            end, of_claim = _end_values(record, log_path, now), (command_id, attempt, owner)
            if text is None:
                row = transaction.one(sql, (*end, *of_claim))
            else:
                row = transaction.one(_START_AND_FINISH, (text, now - record.wall_seconds, *end, *of_claim))
            if row is None:
                raise conflict(_current(transaction, command_id), attempt, owner, f"ended as {status}")
            command = command_from(row, record)
            if log_path is not None:
                artifacts.insert_log(transaction, now, command.session_id, command_id, log_path)
            if text is not None:
                _append_start(transaction, now, command)
            _append_end(transaction, now, command)
        self._notify(Notice(FINISHED, command.session_id, command_id, ended=command))
        return command

    def request_cancel(self, command_id: int) -> Command:
        """Cancel a waiting command; mark a claimed one; return a finished one unchanged."""
        with self._database.write() as transaction:
            now = self._now()
            row = transaction.one(_REQUEST_CANCEL, (now, command_id))
            if row is None:
                return command_from(_current(transaction, command_id))
            command = command_from(row[1:])
            if command.owner is None:
                command = cancel_waiting(transaction, now, command_id)
            elif row[0] == 1:
                _append(transaction, now, CANCEL_REQUESTED, command, "{}")
        kind = FINISHED if command.status.terminal else CANCEL_REQUESTED
        self._notify(Notice(kind, command.session_id, command_id))
        return command

    def newest_by_subject(self, subject: str, *, owner_token_id: int | None = None) -> Command:
        """The newest command of a subject (and of an owner), or NotFoundError."""
        terms, params = filters(("subject = ?", subject), ("owner_token_id = ?", owner_token_id))
        row = self._one(f"SELECT {COLUMNS} FROM commands WHERE {terms} ORDER BY id DESC LIMIT 1", params)
        if row is None:
            raise NotFoundError(f"there is no command with the subject {subject!r}")
        return command_from(row)

    def by_subject_prefix(
        self,
        prefix: str,
        *,
        owner_token_id: int | None = None,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
    ) -> list[Command]:
        """Commands whose subject begins with ``prefix``, after an id, in that order or newest first.

        There is an index for ``task:``.
        """
        if not _PREFIX.fullmatch(prefix):
            raise InvalidInputError(f"a subject begins with lower-case letters and a colon, not with {prefix!r}")
        if owner_token_id is None:
            beyond, order = keyset("id", after, newest=newest)
        else:
            at = ("?", after or (ALL_ROWS if newest else 0))
            beyond, order = page_of("owner_token_id", owner_token_id, at, newest=newest)
        terms, params = filters(beyond)
        # Written out, as in the condition of the index.
        begins = f"substr(subject, 1, {len(prefix)}) = '{prefix}'"
        sql = f"SELECT {COLUMNS} FROM commands WHERE {begins} AND {terms} {order} LIMIT ?"
        return [command_from(row) for row in self._all(sql, (*params, limit))]

    def count_unfinished(self, token_id: int) -> int:
        """The number of unfinished commands in the sessions of a token."""
        row = self._one(_COUNT_UNFINISHED, (token_id,))
        return row[0] if row else 0


def claimed_in_turn(transaction: Transaction, session_id: int, draft: CommandDraft) -> CommandDraft:
    """The command, not claimed if others come first."""
    if draft.in_turn and transaction.one(_CAN_START_NOW, (session_id, *draft.claim_condition(session_id))) is None:
        return draft.unclaimed()
    return draft


def insert(transaction: Transaction, now: float, sealer: Sealer, session_id: int, draft: CommandDraft) -> Command:
    """Insert a command and its event ``command.pending``."""
    sequence, *of_session = require_row(transaction.one(_SEQUENCE, (session_id,)), "session", session_id)
    context = _seal_context(session_id, sequence)
    sealed = sealer.seal(draft.env, context) if draft.env else None
    stdin = sealer.seal({_STDIN: draft.stdin_text}, context) if draft.stdin_text else None
    after = draft.columns_after_env(session_id)
    values = (session_id, sequence, *of_session, *draft.columns_before_env, sealed, *after, stdin, now, now)
    row = transaction.one(_INSERT, values)
    command = command_from(require_row(row, "session", session_id))
    _append(transaction, now, PENDING, command, f'{{"sequence":{sequence}}}')
    return command


def cancel_waiting(transaction: Transaction, now: float, command_id: int) -> Command:
    """Finish a command without an owner as cancelled."""
    row = transaction.one(_CANCEL_WAITING_ROW, (*_end_values(_CANCELLED_WAITING, None, now), command_id))
    command = command_from(require_row(row, "waiting command", command_id))
    _append_end(transaction, now, command)
    return command


def _end_values(record: ExitRecord, log_path: str | None, now: float) -> tuple[object, ...]:
    status = status_for(record.reason)
    took = record.wall_seconds or now  # without a duration, the time of the end is not known: it is now
    end = (status.value, record.exit_code, record.reason.value, exit_text(record), log_path)
    return (*end, now, took, now, took, now)


def _append_start(transaction: Transaction, now: float, command: Command) -> None:
    if transaction.run(_SET_SESSION_RUNNING, (now, command.session_id)):
        event_log.append(transaction, now, "session.running", "{}", session_id=command.session_id)
    _append(transaction, now, STARTED, command, f'{{"attempt":{command.attempt}}}')


def _append_end(transaction: Transaction, now: float, command: Command) -> None:
    code = "null" if command.exit_code is None else command.exit_code
    data = f'{{"status":"{command.status}","reason":"{command.exit_reason}","exit_code":{code}}}'
    _append(transaction, now, FINISHED, command, data)


def _append(transaction: Transaction, now: float, kind: str, command: Command, data: str) -> None:
    event_log.append(
        transaction, now, kind, data, session_id=command.session_id, command_id=command.id, subject=command.subject
    )


def _current(transaction: Transaction, command_id: int) -> Row:
    return require_row(transaction.one(_GET, (command_id,)), "command", command_id)


def _lock_and_find_repeat(
    transaction: Transaction, session_id: int, key: str | None, draft: CommandDraft
) -> Row | None:
    """Lock the session's sequence numbers; the earlier command of this idempotency key, if any."""
    if draft.max_pending is not None:
        transaction.lock("queue")  # always before the session's lock: another order could deadlock
    transaction.lock(f"session:{session_id}")
    return transaction.one(_BY_KEY, (session_id, key)) if key is not None else None


def check_queue_limits(transaction: Transaction, draft: CommandDraft) -> None:
    """QueueFullError when a limit of waiting commands is reached."""
    if draft.max_pending is not None:
        _check_queue_length(transaction, draft.max_pending)
    _check_queue_key_length(transaction, draft.queue_key, draft.key_max_pending)


def _check_queue_length(transaction: Transaction, max_pending: int) -> None:
    row = transaction.one(f"SELECT COUNT(*) FROM commands WHERE {WAITING}")
    if row is not None and row[0] >= max_pending:
        raise QueueFullError(f"the queue is full: {row[0]} commands wait (limit {max_pending}); try again later")


def _check_queue_key_length(transaction: Transaction, queue_key: str | None, limit: int | None) -> None:
    if queue_key is None or limit is None:
        return
    row = transaction.one(f"SELECT COUNT(*) FROM commands WHERE queue_key = ? AND {WAITING}", (queue_key,))
    if row is not None and row[0] >= limit:
        raise QueueFullError(
            f"the queue of {queue_key} is full: {row[0]} commands wait (limit {limit}); try again later"
        )


def _seal_context(session_id: int, sequence: int) -> str:
    return f"session {session_id}, command {sequence}"
