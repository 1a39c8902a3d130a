"""Fills a store with any number of ended sessions and commands, as rows: through the store it would take hours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.model import Claim, CommandSpec, QueuedRun, SessionPlan
from debug_server.store import MetadataStore, open_store
from debug_server.store.address import is_postgres, sqlite_path
from debug_server.store.sealing import Sealer
from debug_server.store.sqlite import SqliteDatabase

_BASE = 1_700_000_000.0  # when the first session was opened, in seconds since the epoch
_SECONDS = 10.0  # between two sessions
_LONG_SHARE = 4  # one command in so many is of the one long session
_STATUSES = ("succeeded", "succeeded", "failed", "succeeded", "cancelled")
_REASONS = {"succeeded": "exited", "failed": "nonzero_exit", "cancelled": "cancelled"}
_SESSION_STATUSES = {"succeeded": "completed", "failed": "failed", "cancelled": "cancelled"}
_KINDS = ("command.pending", "command.started", "command.finished")
_EXIT = '{"reason":"exited","exit_code":0,"wall_seconds":0.5,"mechanism":"cgroup"}'
_PLAN = '{"version":1}'
_TABLES = {
    "sessions": "id, repository_id, status, requested_by, owner_token_id, metadata, created_at, updated_at, plan",
    "commands": (
        "id, session_id, sequence, argv, env_names, log_name, limits, status, attempt, owner, priority, queue_key,"
        " key_limit, tty, metadata, log_path, exit_code, exit_reason, exit_record, created_at, updated_at, started_at,"
        " finished_at, order_key, subject, plan, repository_id, owner_token_id"
    ),
    "artifacts": "id, session_id, command_id, kind, name, path, content_type, metadata, created_at",
    "events": "seq, kind, session_id, command_id, subject, data, created_at",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """How much a store holds, and what to ask it about."""

    sessions: int
    commands: int
    repositories: tuple[int, ...]
    tokens: tuple[int, ...]
    long_session: int  # open, with a quarter of all commands
    open_session: int  # with a running and a waiting command
    running: int
    waiting: int
    task: int  # a command that waits as a task


class CountingDatabase(SqliteDatabase):
    """Counts the instructions that SQLite executes: unlike time, it is the same on every machine and in every run."""

    def __init__(self, path: Path) -> None:
        self.steps = 0
        super().__init__(path)

    def _connect(self) -> sqlite3.Connection:
        connection = super()._connect()
        connection.set_progress_handler(self._count, 1)
        return connection

    def _count(self) -> int:
        self.steps += 1
        return 0


def counting_store(path: Path) -> tuple[MetadataStore, CountingDatabase]:
    """A store whose steps are counted."""
    database = CountingDatabase(path)
    return MetadataStore(database, Sealer(path.with_name("seal.key"))), database


def fill(url: str, *, sessions: int, commands: int, data_folder: Path | None = None) -> Filling:
    """Fill the new store at ``url``; what is open or unfinished at the end does not depend on the numbers."""
    with open_store(url, data_folder=data_folder) as store:
        repositories = tuple(store.repositories.create(f"r{number}", f"/r{number}").id for number in range(3))
        tokens = tuple(store.tokens.create(f"t{number}", ["admin"])[0].id for number in range(3))
    rows = _Rows(sessions=sessions, commands=commands, repositories=(None, *repositories), tokens=(None, *tokens))
    _insert(url, rows)
    with open_store(url, data_folder=data_folder) as store:
        return _with_open_ones(store, sessions, commands, repositories, tokens)


def _with_open_ones(
    store: MetadataStore, sessions: int, commands: int, repositories: tuple[int, ...], tokens: tuple[int, ...]
) -> Filling:
    opened = store.sessions.create(repository_id=repositories[0], owner_token_id=tokens[0])
    running = store.commands.add(session_id=opened.id, argv=["true"], claim_owner="me")
    store.commands.start(running.id, attempt=1, owner="me", handle={}, log_path="/log")
    waiting = store.commands.add(session_id=opened.id, argv=["true"], order_key="order")
    run = QueuedRun(
        subject="task:new",
        spec=CommandSpec(["true"]),
        session_plan=SessionPlan(scratch=True),
        claims=[Claim(resource="task:new", waits=False)],
        owner_token_id=tokens[0],
    )
    (task,) = store.runs.add([run]) or []
    return Filling(
        sessions=sessions,
        commands=commands,
        repositories=repositories,
        tokens=tokens,
        long_session=1,
        open_session=opened.id,
        running=running.id,
        waiting=waiting.id,
        task=task.id,  # type: ignore[union-attr]  # the one step is a run
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    sessions: int
    commands: int
    repositories: Sequence[int | None]
    tokens: Sequence[int | None]

    def _session_of(self, command: int) -> int:
        return 1 if command % _LONG_SHARE == 0 else 2 + command * (self.sessions - 1) // (self.commands + 1)

    def _created(self, command: int) -> float:
        return _BASE + command * _SECONDS * self.sessions / self.commands

    def _owner(self, session: int) -> tuple[int | None, int | None]:
        repository = self.repositories[session % len(self.repositories)]
        return repository, self.tokens[session // 5 % len(self.tokens)]

    def of(self, table: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a table."""
        made: Iterator[tuple[Any, ...]] = getattr(self, f"_{table}")()
        return made

    def _sessions(self) -> Iterator[tuple[Any, ...]]:
        for number in range(1, self.sessions + 1):
            repository, token = self._owner(number)
            status = "running" if number == 1 else _SESSION_STATUSES[_STATUSES[number % len(_STATUSES)]]
            at = _BASE + number * _SECONDS
            yield (number, repository, status, "somebody", token, "{}", at, at + 5, _PLAN)

    def _commands(self) -> Iterator[tuple[Any, ...]]:
        sequences: dict[int, int] = {}
        for number in range(1, self.commands + 1):
            session = self._session_of(number)
            sequences[session] = sequences.get(session, 0) + 1
            repository, token = self._owner(session)
            # None of the long session's has failed: a search for one must not look at all of them.
            status = "succeeded" if session == 1 else _STATUSES[number % len(_STATUSES)]
            order = "order" if number % 50 == 1 else None
            subject = f"task:{number}" if number % 50 == 2 else "dispatch" if order is not None else None
            at = self._created(number)
            yield (
                *(number, session, sequences[session], '["true"]', "[]", "command", "{}", status, 1, "gone", 0),
                *(f"session:{session}", 1, 0, "{}", f"/logs/{session}/command-{number}.log", 0, _REASONS[status]),
                *(_EXIT, at, at + 1, at + 0.5, at + 1, order, subject, _PLAN, repository, token),
            )

    def _artifacts(self) -> Iterator[tuple[Any, ...]]:
        for number in range(1, self.commands + 1):
            session = self._session_of(number)
            path = f"/logs/{session}/command-{number}.log"
            name = f"command-{number}.log"
            yield (number, session, number, "log", name, path, "text/plain", "{}", self._created(number) + 1)

    def _events(self) -> Iterator[tuple[Any, ...]]:
        seq = 0
        for number in range(1, self.commands + 1):
            for kind in _KINDS:
                seq += 1
                at = self._created(number)
                yield (seq, kind, self._session_of(number), number, None, "{}", at)


def _insert(url: str, rows: _Rows) -> None:
    for table, columns in _TABLES.items():
        if is_postgres(url):
            _copy_into_postgres(url, table, columns, rows)
        else:
            sql = f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(columns.split(',')))})"
            with sqlite3.connect(sqlite_path(url)) as connection:
                connection.execute("PRAGMA synchronous=OFF")
                connection.executemany(sql, rows.of(table))
            connection.close()


def _copy_into_postgres(url: str, table: str, columns: str, rows: _Rows) -> None:
    import psycopg

    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            for row in rows.of(table):
                copy.write_row(row)
        if table != "events":
            cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT MAX(id) FROM {table}))")
