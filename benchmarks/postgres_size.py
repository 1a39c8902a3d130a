"""What each question to the store costs on PostgreSQL when a million commands have ended, against two thousand.

The server is a private one of this run. Counted are the rows and index entries that it reads, and CPU time: that of the
connection's process in the server and of this one together.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.figures import Fact, Figure, Result, Skipped, at_most, interleaved
from benchmarks.growth import compared
from benchmarks.processes import cpu_seconds
from debug_server.store import MetadataStore
from debug_server.store.address import seal_key_path
from debug_server.store.postgres import PostgresDatabase
from debug_server.store.sealing import Sealer
from tests.store.costs import OPERATIONS, Operation
from tests.store.filled_store import Filling, fill
from tests.store.postgres_cluster import Cluster, ClusterUnavailableError, running_cluster

_GROWING = ("commands", "sessions", "events", "artifacts")
_ROWS_READ = b"SELECT tup_returned + tup_fetched FROM pg_stat_database WHERE datname = current_database()"
_A_PAGE = 20  # rows: where a page ends differs


def measure(amounts: tuple[tuple[int, int], tuple[int, int]], calls: int, once: str) -> list[Result]:
    """Each question but ``once``; ``amounts`` are the sessions and commands of both databases."""
    try:
        with running_cluster() as cluster, ExitStack() as stack:
            filled = [stack.enter_context(_filled(cluster, *numbers)) for numbers in amounts]
            return _questions(filled, calls, once)
    except ClusterUnavailableError as error:
        return [Skipped(name="postgresql", reason=str(error))]


class _Filled:
    """A filled database, and the only connection to it that is measured."""

    def __init__(self, url: str, filling: Filling, key: Path) -> None:
        self._database = PostgresDatabase(url)
        self._filling = filling
        self.store = MetadataStore(self._database, Sealer(key))
        connection = self._database.borrow_connection()
        self._backend = connection.info.backend_pid
        self._database.return_connection(connection)

    def rows_read(self, operation: Operation) -> int:
        """By one call."""
        before = self._rows_read()
        idle = self._rows_read() - before  # what asking for it takes
        before = self._rows_read()
        operation(self.store, self._filling)
        return self._rows_read() - before - idle

    def _rows_read(self) -> int:
        connection = self._database.borrow_connection()
        try:
            connection.execute(b"SELECT pg_stat_force_next_flush()")
            row = connection.execute(_ROWS_READ).fetchone()
            assert row is not None
            return int(row[0])
        finally:
            self._database.return_connection(connection)

    def cpu(self, operation: Operation) -> float:
        """CPU time of one call, here and in the server."""
        before = time.thread_time() + cpu_seconds(self._backend)
        operation(self.store, self._filling)
        return time.thread_time() + cpu_seconds(self._backend) - before


@contextmanager
def _filled(cluster: Cluster, sessions: int, commands: int) -> Iterator[_Filled]:
    import psycopg

    with cluster.database() as url, tempfile.TemporaryDirectory(prefix="debug-server-bench-") as name:
        filling = fill(url, sessions=sessions, commands=commands, data_folder=Path(name))
        with psycopg.connect(url, autocommit=True) as connection:
            for table in _GROWING:  # the server's own reading would be counted
                connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
            connection.execute(b"VACUUM ANALYZE")
        filled = _Filled(url, filling, seal_key_path(url, {}, Path(name)))
        with filled.store:
            yield filled


def _questions(filled: list[_Filled], calls: int, once: str) -> list[Result]:
    results: list[Result] = []
    worst = 0.0
    for name, operation in OPERATIONS.items():
        if name == once:
            continue
        small_rows, large_rows = (one.rows_read(operation) for one in filled)
        worst = max(worst, large_rows / (small_rows + _A_PAGE))
        asks: list[Callable[[], float]] = [partial(one.cpu, operation) for one in filled]
        small, large = interleaved(*asks, rounds=calls)
        counted: dict[str, Fact] = {"large_rows": large_rows, "small_rows": small_rows}
        results.append(compared(f"postgresql, {name}", small, large, counted))
    return [Figure(name="postgresql, most_rows", value=worst, unit="x", bar=at_most(1.5)), *results]
