"""MetadataStore: its members, and opening it by URL."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from debug_server.errors import ConfigurationError
from debug_server.model import Session, SessionPlan
from debug_server.model.extras import install_command
from debug_server.store.address import is_postgres, seal_key_path, sqlite_path
from debug_server.store.artifacts import Artifacts
from debug_server.store.commands import Commands
from debug_server.store.connection import Database
from debug_server.store.data_folder import DataFolder
from debug_server.store.debuggers import Debuggers
from debug_server.store.event_log import EventLog
from debug_server.store.history import History
from debug_server.store.keyed_requests import KeyedRequests
from debug_server.store.migrations import migrate
from debug_server.store.outbox import Outbox
from debug_server.store.queue import Queue
from debug_server.store.repositories import Repositories
from debug_server.store.runs import Runs
from debug_server.store.schedules import Schedules
from debug_server.store.sealing import Sealer
from debug_server.store.sessions import Sessions
from debug_server.store.sqlite import BUSY_SECONDS, SqliteDatabase
from debug_server.store.table import Shared
from debug_server.store.tokens import Tokens
from debug_server.store.worktrees import Worktrees

WORKSPACE = "workspace"


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


class MetadataStore:
    """All durable data except the bytes of logs; one attribute for each table or group of tables.

    Threads may share a store, and processes may share its database.
    """

    def __init__(self, database: Database, sealer: Sealer, now: Callable[[], datetime] = utc_now) -> None:
        migrate(database)
        shared = Shared(database=database, sealer=sealer, clock=now)
        self._database = database
        self.repositories = Repositories(shared)
        self.worktrees = Worktrees(shared)
        self.sessions = Sessions(shared)
        self.commands = Commands(shared)
        self.queue = Queue(shared)
        self.runs = Runs(shared)
        self.artifacts = Artifacts(shared)
        self.events = EventLog(shared)
        self.outbox = Outbox(shared)
        self.tokens = Tokens(shared)
        self.requests = KeyedRequests(shared)
        self.schedules = Schedules(shared)
        self.debuggers = Debuggers(shared)
        self.history = History(shared)
        self.data_folder = DataFolder(shared)
        # Names of the public Python API.
        self.create_repository = self.repositories.create
        self.get_repository_by_name = self.repositories.by_name
        self.list_commands = self.commands.in_session

    def create_session(
        self, *, metadata: Mapping[str, Any] | None = None, plan: SessionPlan | None = None, **asked: Any
    ) -> Session:
        """``sessions.create``; ``metadata`` may name the commands' directory as ``workspace``."""
        if plan is None and metadata is not None and WORKSPACE in metadata:
            plan = SessionPlan(directory=str(metadata[WORKSPACE]))
        return self.sessions.create(metadata=metadata, plan=plan, **asked)

    @property
    def address(self) -> str:
        """Where the database is, for messages."""
        return self._database.address

    @property
    def reads_in_event_loop(self) -> bool:
        """Whether a row is read in microseconds without waiting for a writer, so that a thread is not worth it."""
        return self._database.reads_in_event_loop

    def keep_reserve(self) -> None:
        """Reserve disk space for the database, so that ends can be recorded on a full disk; may be repeated."""
        self._database.keep_reserve()

    def close(self) -> None:
        """Close the database; later calls raise StoreUnavailableError."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(
    url: str | os.PathLike[str],
    *,
    now: Callable[[], datetime] | None = None,
    busy_seconds: float = BUSY_SECONDS,
    data_folder: Path | None = None,
) -> MetadataStore:
    """Open the store of a URL or a plain path (see ``address``), and migrate it to the current schema.

    ``busy_seconds`` is how long a writer waits for another process that has locked an SQLite file. ``data_folder``
    holds the sealing key of a PostgreSQL store; default: the one that applies in the current directory.
    """
    address = os.fspath(url)
    database = open_database(address, busy_seconds=busy_seconds)
    try:
        return MetadataStore(database, Sealer(seal_key_path(address, os.environ, data_folder)), now or utc_now)
    except BaseException:
        database.close()
        raise


def open_database(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Database:
    """The database without a migration: for migrations and repair."""
    if not is_postgres(url):
        return SqliteDatabase(sqlite_path(url), busy_seconds=busy_seconds)
    try:
        from debug_server.store.postgres import PostgresDatabase
    except ImportError as error:
        raise ConfigurationError(
            f"a postgresql:// URL needs the psycopg package: {install_command('postgres')}"
        ) from error
    return PostgresDatabase(url)
