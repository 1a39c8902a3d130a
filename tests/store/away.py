"""A store that is away for a while: a locked SQLite file, a PostgreSQL database that takes no connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from debug_server.store.address import is_postgres, sqlite_path


@contextmanager
def away(database_url: str) -> Iterator[None]:
    """Nobody can write (PostgreSQL: nor read) until the block ends."""
    if is_postgres(database_url):
        with _closed(database_url):
            yield
        return
    with closing(sqlite3.connect(sqlite_path(database_url), timeout=30.0, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@contextmanager
def _closed(database_url: str) -> Iterator[None]:
    import psycopg

    name = urlsplit(database_url).path.lstrip("/")
    with psycopg.connect(database_url, dbname="postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false".encode())
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        try:
            yield
        finally:
            connection.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true".encode())
