"""What the store is asked costs the same, however many sessions and commands have ended.

Nothing here is timed: the instructions that SQLite executes are counted, and PostgreSQL tells its plans.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from debug_server.store import MetadataStore, open_store
from debug_server.store.table import Table
from tests.store.costs import OPERATIONS
from tests.store.filled_store import Filling, counting_store, fill
from tests.store.postgres_cluster import Cluster

SMALL, LARGE = 200, 1600  # sessions; ten times as many commands
GROWING = ("commands", "sessions", "events", "artifacts")
MEMBERS = ("commands", "sessions", "queue", "runs", "artifacts", "events", "history")
EXEMPT = {
    "sessions.patches",  # one pass over the sessions, by maintenance alone
    "commands.last_change",  # asked once for a session that is about to be closed, and says so
    "events.add_listener",
    "sessions.set_cleanup",  # of one row by its id, as the next two
    "sessions.set_lease",
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], dict[str, int], set[str]]:
    """The steps of each operation in a small and in a large store, and which methods were called."""
    called: set[str] = set()
    measured = [_measured(tmp_path_factory.mktemp("store"), sessions, called) for sessions in (SMALL, LARGE)]
    return measured[0], measured[1], called


def _measured(folder: Path, sessions: int, called: set[str]) -> dict[str, int]:
    path = folder / "data" / "metadata.db"
    filling = fill(f"sqlite:///{path}", sessions=sessions, commands=10 * sessions)
    store, database = counting_store(path)
    with store:
        _note_calls(store, called)
        return {name: _steps_of(name, store, database, filling) for name in OPERATIONS}


def _steps_of(name: str, store: MetadataStore, database: Any, filling: Filling) -> int:
    before: int = database.steps
    OPERATIONS[name](store, filling)
    return int(database.steps) - before


def _note_calls(store: MetadataStore, called: set[str]) -> None:
    for member in MEMBERS:
        table: Table = getattr(store, member)
        for name in _public(table):
            setattr(table, name, _noting(getattr(table, name), called, f"{member}.{name}"))


def _public(table: Table) -> list[str]:
    return [name for name, _ in inspect.getmembers(type(table), inspect.isfunction) if not name.startswith("_")]


def _noting(method: Any, called: set[str], name: str) -> Any:
    def noted(*args: Any, **named: Any) -> Any:
        called.add(name)
        return method(*args, **named)

    return noted


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_takes_more_steps_in_a_large_store(
    name: str, steps: tuple[dict[str, int], dict[str, int], set[str]]
) -> None:
    """With eight times as many rows, each operation takes the same steps (within a fifth, for where a page ends)."""
    small, large, _ = steps
    assert large[name] <= small[name] * 1.2 + 20, f"{small[name]} steps have become {large[name]}"


def test_a_search_of_every_row_is_found(tmp_path: Path) -> None:
    """The measure itself: what has no index takes eight times the steps."""
    taken = []
    for sessions in (SMALL, LARGE):
        path = tmp_path / str(sessions) / "metadata.db"
        fill(f"sqlite:///{path}", sessions=sessions, commands=10 * sessions)
        store, database = counting_store(path)
        with store:
            before = database.steps
            store.events.read(0, 5, kind="no such kind")
            taken.append(database.steps - before)
    assert taken[1] > taken[0] * 4


def test_every_method_of_the_store_is_measured(
    steps: tuple[dict[str, int], dict[str, int], set[str]], tmp_path: Path
) -> None:
    """A new method of a table that grows needs an operation in ``costs.py``."""
    *_, called = steps
    with open_store(tmp_path / "metadata.db") as store:
        methods = {f"{member}.{name}" for member in MEMBERS for name in _public(getattr(store, member))}
    assert methods - called - EXEMPT == set()


@pytest.fixture(scope="module")
def plans(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The plan of each statement of each operation, when PostgreSQL avoids to read a whole table if it can."""
    with pytest.MonkeyPatch.context() as environment, postgres.database() as url:
        environment.setenv("DEBUG_SERVER_SEAL_KEY_FILE", str(tmp_path_factory.mktemp("key") / "seal.key"))
        filling = fill(url, sessions=SMALL, commands=10 * SMALL)
        yield _plans(url, filling, environment)


def _plans(url: str, filling: Filling, environment: pytest.MonkeyPatch) -> dict[str, list[str]]:
    import psycopg

    statements: list[tuple[bytes, Any]] = []
    execute = psycopg.Connection.execute

    def noted(connection: Any, sql: bytes, params: Any = None, **named: Any) -> Any:
        statements.append((sql, params))
        return execute(connection, sql, params, **named)

    found: dict[str, list[str]] = {}
    with open_store(url) as store, psycopg.connect(url, cursor_factory=psycopg.ClientCursor) as other:
        other.execute("ANALYZE")
        other.execute("SET enable_seqscan = off")
        for name, operation in OPERATIONS.items():
            statements.clear()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(psycopg.Connection, "execute", noted)
                operation(store, filling)
            asked = [(sql, params) for sql, params in statements if sql.lstrip()[:6] in _PLANNED]
            found[name] = [_plan(other.cursor(), sql, params) for sql, params in asked]
    return found


_PLANNED = (b"SELECT", b"INSERT", b"UPDATE", b"DELETE")


def _plan(cursor: Any, sql: bytes, params: Any) -> str:
    return "\n".join(row[0] for row in cursor.execute(b"EXPLAIN " + sql, params))


@pytest.mark.parametrize("name", OPERATIONS)
def test_postgresql_has_an_index_for_each_operation(name: str, plans: dict[str, list[str]]) -> None:
    """No plan reads a whole table that grows."""
    assert plans[name]
    for plan in plans[name]:
        assert not re.search(rf"Seq Scan on ({'|'.join(GROWING)})\b", plan), plan
