"""URLs, files, migrations and every way in which a database can be unusable."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from debug_server.errors import ConfigurationError, DebugServerError, InvalidInputError, StoreUnavailableError
from debug_server.store import MetadataStore, default_url, open_store
from debug_server.store.address import without_secrets
from debug_server.store.connection import Database
from debug_server.store.metadata import open_database
from debug_server.store.migrations import LATEST, migrate, schema_version
from debug_server.store.sealing import Sealer
from debug_server.store.sqlite import SqliteDatabase

from . import programs
from .postgres_cluster import Cluster


def tables(database: Database, url: str) -> set[str]:
    catalogue = "sqlite_master" if url.startswith("sqlite") else "pg_tables"
    column = "name" if url.startswith("sqlite") else "tablename"
    with database.read() as reader:
        return {row[0] for row in reader.all(f"SELECT {column} FROM {catalogue}")}


def test_migrations_go_up_and_down(database_url: str) -> None:
    """Up, down and up again: the tables come, go and come, and the store works on the result."""
    database = open_database(database_url)
    migrate(database)
    assert {"commands", "events"} <= tables(database, database_url)
    migrate(database, 0)
    assert not {"commands", "events", "sessions"} & tables(database, database_url)
    migrate(database)
    with pytest.raises(InvalidInputError, match="version 99"):
        migrate(database, 99)
    database.close()
    with open_store(database_url) as store:
        assert store.commands.add(session_id=store.sessions.create().id, argv=["x"]).id == 1


def test_a_failing_step_leaves_nothing(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that fails half-way changes neither the tables nor the version."""
    from debug_server.store import migrations, schema

    broken = schema.Migration(version=LATEST + 1, up=("CREATE TABLE half (id BIGINT)", "NONSENSE"), down=())
    database = open_database(database_url)
    migrate(database)
    monkeypatch.setattr(migrations, "MIGRATIONS", (*schema.MIGRATIONS, broken))
    monkeypatch.setattr(migrations, "LATEST", LATEST + 1)
    with pytest.raises(StoreUnavailableError):
        migrate(database, LATEST + 1)
    assert "half" not in tables(database, database_url)
    with database.write() as transaction:
        assert schema_version(transaction) == LATEST
    database.close()


def test_a_newer_database_is_left_alone(database_url: str) -> None:
    """A schema of a later program is refused with both versions and advice."""
    database = open_database(database_url)
    migrate(database)
    with database.write() as transaction:
        transaction.run("UPDATE schema_version SET version = ?", (LATEST + 1,))
    database.close()
    with pytest.raises(StoreUnavailableError, match=rf"version {LATEST + 1}, this program supports {LATEST}: upgrade"):
        open_store(database_url)


def test_processes_open_a_new_database_at_once(database_url: str) -> None:
    """Six processes that open an empty database in the same moment all find it ready."""
    processes = [programs.start("open", database_url) for _ in range(6)]
    for process in processes:
        process.stdin.write(b"go\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0] * 6
    with open_store(database_url) as store:
        environments = [store.commands.inputs(number)[0] for number in range(1, 7)]
    assert environments == [{"A": "b"}] * 6


def test_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative, absolute and plain forms name the file; others are refused with the forms that work."""
    monkeypatch.chdir(tmp_path)
    for url, path in (
        ("sqlite:///rel/a.db", "rel/a.db"),
        (f"sqlite:///{tmp_path}/abs.db", "abs.db"),
        ("plain.db", "plain.db"),
        (tmp_path / "path.db", "path.db"),
    ):
        open_store(url).close()
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "rel").stat().st_mode & 0o777 == 0o700
    for url in ("sqlite://", "sqlite:///", "sqlite:///:memory:", "", "mysql://host/x"):
        with pytest.raises(ConfigurationError, match="use sqlite:///"):
            open_store(url)


def test_default_url() -> None:
    """The three variables are read in order; an empty one counts as unset."""
    assert default_url({}, Path("/data")) == "sqlite:////data/data/metadata.db"
    assert default_url({"DEBUG_SERVER_PATHS_ARTIFACTS": "/other"}) == "sqlite:////other/data/metadata.db"
    assert default_url({"DEBUG_SERVER_DB_URL": "", "DATABASE_URL": "b"}) == "b"
    assert default_url({"METADATA_DB_URL": "c"}) == "c"
    assert default_url({"DEBUG_SERVER_DB_URL": "a", "DATABASE_URL": "b", "METADATA_DB_URL": "c"}) == "a"


def test_addresses_show_no_password() -> None:
    """What goes into messages has neither user information nor options."""
    assert without_secrets("postgresql://me:hush@h:5/x?password=hush") == "postgresql://h:5/x"


def corrupt_file(path: Path) -> None:
    path.write_bytes(b"this is no database, it is a sentence." * 200)


def corrupt_pages(path: Path) -> None:
    open_store(str(path)).close()
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)


def a_directory(path: Path) -> None:
    path.mkdir()


def below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("a file where a directory should be")


@pytest.mark.parametrize("spoil", [corrupt_file, corrupt_pages, a_directory, below_a_file])
def test_what_cannot_be_opened_is_named(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """A damaged file, a directory, a place that cannot be: StoreUnavailableError with the path, nothing of sqlite3."""
    path = tmp_path / "data" / "m.db"
    path.parent.mkdir()
    spoil(path)
    with pytest.raises(StoreUnavailableError, match=r"m\.db"):
        open_store(str(path))


def test_a_full_disk(tmp_path: Path) -> None:
    """When the file cannot grow the call fails by name, nothing is half written, and space makes it work again."""
    database = SqliteDatabase(tmp_path / "m.db")
    store = MetadataStore(database, Sealer(tmp_path / "k"))
    session = store.sessions.create()
    with database.write() as transaction:
        pages = transaction.one("PRAGMA page_count")
        assert pages is not None
        transaction.one(f"PRAGMA max_page_count={pages[0]}")
    with pytest.raises(StoreUnavailableError, match="disk is full: free some space"):
        for _ in range(100):
            store.commands.add(session_id=session.id, argv=["x" * 1000])
    added = len(store.commands.in_session(session.id))
    assert len(store.events.read(kind="command.pending")) == added
    with database.write() as transaction:
        transaction.one("PRAGMA max_page_count=1000000")
    store.commands.add(session_id=session.id, argv=["x" * 1000])
    store.close()


def test_a_locked_database(tmp_path: Path) -> None:
    """Another process's endless write makes ours fail after the wait, and reading goes on."""
    open_store(str(tmp_path / "m.db")).close()
    database = SqliteDatabase(tmp_path / "m.db", busy_seconds=0.1)
    store = MetadataStore(database, Sealer(tmp_path / "k"))
    other = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError, match="locked by another process"):
        store.sessions.create()
    assert store.sessions.page() == []
    other.execute("ROLLBACK")
    other.close()
    store.sessions.create()
    store.close()


def test_a_thread_that_holds_the_writer(tmp_path: Path) -> None:
    """A thread waits for another's write only for a while."""
    database = SqliteDatabase(tmp_path / "m.db", busy_seconds=0.1)
    store = MetadataStore(database, Sealer(tmp_path / "k"))
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with database.write():
            inside.set()
            leave.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(30)
    with pytest.raises(StoreUnavailableError, match="busy with another thread"):
        store.sessions.create()
    leave.set()
    holder.join()
    store.close()


def test_only_our_errors_leave_the_store(store: MetadataStore) -> None:
    """After the tables are gone and after the store is closed, every call ends in an error of our own tree."""
    calls: list[Callable[[], object]] = [
        lambda: store.sessions.get(1),
        store.sessions.page,
        store.sessions.create,
        lambda: store.commands.add(session_id=1, argv=["x"]),
        lambda: store.queue.claim_next("e"),
        lambda: store.commands.request_cancel(1),
        lambda: store.events.append("x"),
        store.events.read,
        lambda: store.tokens.authenticate("x"),
        store.queue.depth,
    ]
    migrate(store._database, 0)
    for call in calls:
        with pytest.raises(DebugServerError) as caught:
            call()
        assert isinstance(caught.value, StoreUnavailableError)
    store.close()
    for call in calls:
        with pytest.raises(StoreUnavailableError):
            call()


def test_a_postgres_that_went_away(postgres: Cluster) -> None:
    """Connections that the server has ended are replaced; a server that is not there is named without a password."""
    with postgres.database() as url, open_store(url) as store:
        session = store.sessions.create()
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        store.sessions.touch([session.id])
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        with pytest.raises(StoreUnavailableError):
            store.sessions.get(session.id)
        assert store.sessions.get(session.id).id == session.id
    with pytest.raises(StoreUnavailableError, match="check that the server runs") as caught:
        open_store("postgresql://me:hush@127.0.0.1:1/x")
    assert "hush" not in str(caught.value)
