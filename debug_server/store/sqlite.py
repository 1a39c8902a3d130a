"""SQLite behind the connection port: one writer, a few readers, WAL."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from debug_server.errors import ConflictError, DebugServerError, InvalidInputError, NotFoundError, StoreUnavailableError
from debug_server.store.connection import Row
from debug_server.store.disk_reserve import Reserve

BUSY_SECONDS = 10.0
MAX_IDLE_READERS = 8
_FULL_DISK_BYTES = 64 << 10  # bytes: a commit may need more

_DRIVER_ERRORS = (sqlite3.Error, OverflowError, UnicodeEncodeError)
_ADVICE = {
    sqlite3.SQLITE_BUSY: "is locked by another process: let it finish or stop it, then try again",
    sqlite3.SQLITE_LOCKED: "is locked by another process: let it finish or stop it, then try again",
    sqlite3.SQLITE_FULL: "cannot grow because the disk is full: free some space, then try again",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore a backup, or move the file away to start with a new one",
    sqlite3.SQLITE_NOTADB: "is not an SQLite database: restore a backup, or move the file away to start with a new one",
    sqlite3.SQLITE_READONLY: "cannot be written: make the file and its directory writable for this user",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: make its directory exist and be writable for this user",
    sqlite3.SQLITE_PERM: "cannot be opened: make the file and its directory belong to this user",
    sqlite3.SQLITE_IOERR: "cannot be read or written: check the disk and its free space",
}


def translated(error: BaseException, path: str) -> DebugServerError:
    """The error of ``debug_server.errors`` for an error of the driver."""
    if not isinstance(error, sqlite3.Error):
        return InvalidInputError(f"a value cannot be stored: {error}")
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
        return NotFoundError("the row refers to another one that does not exist")
    if isinstance(error, sqlite3.IntegrityError):
        return ConflictError(f"the row conflicts with another one ({error})")
    if isinstance(error, sqlite3.InterfaceError | sqlite3.DataError):
        return InvalidInputError(f"a value cannot be stored: {error}")
    advice = _ADVICE.get(code & 0xFF, "cannot be used: check that it is this program's database and is still open")
    return StoreUnavailableError(f"the database {path} {advice} ({error})")


class SqliteDatabase:
    """One SQLite file."""

    reads_in_event_loop = True  # readers of a WAL never wait for its writer
    types: Mapping[str, str] = {
        "id": "INTEGER PRIMARY KEY",
        "removable_id": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "key": "INTEGER PRIMARY KEY",
        "blob": "BLOB",
        "double": "REAL",
    }

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.address = str(path)
        self._busy = busy_seconds
        self._closed = False
        self._idle: list[sqlite3.Connection] = []
        _create_file(path)
        try:
            connection = self._connect()
            _enter_wal(connection, time.monotonic() + busy_seconds)
        except sqlite3.Error as error:
            raise translated(error, self.address) from error
        self._reserve = Reserve(path)
        self._writer = _Writer(connection, self.address, busy_seconds, self._reserve)

    def write(self) -> _Writer:
        """See the port. Blocks of one thread must not be nested."""
        return self._writer

    def read(self) -> _Reader:
        """See the port."""
        return _Reader(self)

    def keep_reserve(self) -> None:
        """See the port."""
        self._reserve.create()

    def close(self) -> None:
        """Close every connection; open blocks end first or fail."""
        self._closed = True
        self._writer.close()
        while self._idle:
            self._idle.pop().close()

    def borrow_reader(self) -> sqlite3.Connection:
        """A connection for one reading block."""
        if self._closed:
            raise StoreUnavailableError(f"the database {self.address} was closed: open the store again")
        try:
            return self._idle.pop()
        except IndexError:
            connection = self._connect()
            connection.execute("PRAGMA query_only=ON")
            return connection

    def return_reader(self, connection: sqlite3.Connection) -> None:
        """Return a connection of ``borrow_reader``."""
        if self._closed or len(self._idle) >= MAX_IDLE_READERS:
            connection.close()
        else:
            self._idle.append(connection)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.address, timeout=self._busy, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        # Small pages: a commit touches a few rows in many trees, and each page is written whole (10 % quicker than
        # 4096 over a command's life). The checkpoint keeps its default distance of 4 MB.
        connection.execute("PRAGMA page_size=2048")
        connection.execute("PRAGMA wal_autocheckpoint=2000")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA temp_store=MEMORY")
        return connection


class _Statements:
    """Statements on one connection, with one cursor: creating one costs as much as a small statement."""

    __slots__ = ("_fetch", "execute")

    def __init__(self, connection: sqlite3.Connection) -> None:
        cursor = connection.cursor()
        self.execute = cursor.execute
        self._fetch = cursor.fetchone

    def one(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        self.execute(sql, params)
        row: Row | None = self._fetch()
        return row

    def all(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        return self.execute(sql, params).fetchall()

    def run(self, sql: str, params: Sequence[Any] = ()) -> int:
        return self.execute(sql, params).rowcount

    def lock(self, name: str) -> None:
        """Does nothing: a write transaction locks the whole file."""


class _Writer:
    """The one write connection, as a context manager that one thread at a time holds."""

    def __init__(self, connection: sqlite3.Connection, path: str, busy_seconds: float, reserve: Reserve) -> None:
        self._connection = connection
        self._statements = _Statements(connection)
        self._execute = self._statements.execute
        self._path = path
        self._busy = busy_seconds
        self._reserve = reserve
        self._lock = threading.Lock()

    def __enter__(self) -> _Statements:
        if not self._lock.acquire(timeout=self._busy):
            raise StoreUnavailableError(f"the database {self._path} is busy with another thread's write: try again")
        try:
            self._execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._free_space(error)
            self._lock.release()
            raise translated(error, self._path) from error
        except BaseException:
            self._lock.release()
            raise
        return self._statements

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._execute("COMMIT")
            else:
                self._roll_back()
                self._free_space(error)
        except sqlite3.Error as failed:
            self._roll_back()
            self._free_space(failed)
            raise translated(failed, self._path) from failed
        finally:
            self._lock.release()
        if isinstance(error, _DRIVER_ERRORS):
            raise translated(error, self._path) from error

    def _free_space(self, error: BaseException) -> None:
        """After a failure because the disk is full, free space for the next attempt; the WAL may report IOERR."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(self._path)):
            self._reserve.release()
            with suppress(sqlite3.Error):  # WAL pages copied to the database can be reused by the next commits
                self._execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _roll_back(self) -> None:
        # A failed commit or a full disk may already have ended the transaction.
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._execute("ROLLBACK")

    def close(self) -> None:
        with self._lock:
            self._connection.close()


class _Reader:
    """One borrowed read connection."""

    __slots__ = ("_connection", "_database")

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def __enter__(self) -> _Statements:
        try:
            self._connection = self._database.borrow_reader()
        except sqlite3.Error as error:
            raise translated(error, self._database.address) from error
        return _Statements(self._connection)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.return_reader(self._connection)
        if isinstance(error, _DRIVER_ERRORS):
            raise translated(error, self._database.address) from error


def _is_full(path: str) -> bool:
    disk = os.statvfs(Path(path).parent)
    return disk.f_bavail * disk.f_frsize < _FULL_DISK_BYTES


def _create_file(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            # Not open(): closing a second descriptor of the file would drop this process's SQLite locks on it.
            os.mknod(path, stat.S_IFREG | 0o600)
    except OSError as error:
        raise StoreUnavailableError(
            f"the database {path} cannot be created ({error.strerror}): use a path that this user can write"
        ) from error


def _enter_wal(connection: sqlite3.Connection, deadline: float) -> None:
    """Switch to WAL; SQLite does not wait for another process that does the same, so poll."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return
