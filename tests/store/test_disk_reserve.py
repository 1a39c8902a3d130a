"""The store's reserve: space for the ends of commands on a disk that is full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_server.errors import StoreUnavailableError
from debug_server.store import open_store
from debug_server.store.disk_reserve import Reserve
from debug_server.store.sqlite import SqliteDatabase
from tests.small_disk import fill_up, free_bytes, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB."""
    with small_disk(tmp_path / "disk", mebibytes=48) as place:
        yield place


def _reserve(database: Path) -> Path:
    return database.with_name(f"{database.name}-reserve")


def test_a_full_disk_costs_the_store_its_reserve_and_nothing_else(disk: Path) -> None:
    """A commit that finds no space is repeated with the reserve's; the reserve is back with the first commit that
    finds room for it."""
    database = disk / "data" / "metadata.db"
    with open_store(f"sqlite:///{database}") as store:
        store.keep_reserve()
        assert _reserve(database).exists()
        rest = fill_up(disk)
        for number in range(60):
            store.events.append(f"event.{number}", data={"text": "x" * 1000})
        assert len(store.events.read(0, 100)) == 60
        assert not _reserve(database).exists()
        rest.unlink()
        store.events.append("event.last")
        assert _reserve(database).exists()


def test_a_store_opens_on_a_full_disk(disk: Path, tmp_path: Path) -> None:
    """Another process died with changes in the write-ahead log: to read them, opening has the space of the reserve."""
    database = disk / "data" / "metadata.db"
    with open_store(f"sqlite:///{database}") as store:
        store.keep_reserve()
        store.events.append("event.first")
        copies = {path.name: path.read_bytes() for path in database.parent.iterdir() if path.name.endswith(("db", "l"))}
        copies |= {_reserve(database).name: bytes(_reserve(database).stat().st_size)}
    for name, content in copies.items():
        (database.parent / name).write_bytes(content)
    assert (database.parent / "metadata.db-wal").stat().st_size
    fill_up(disk)
    with open_store(f"sqlite:///{database}") as store:
        store.events.append("event.second")
        assert [event.kind for event in store.events.read(0, 10)] == ["event.first", "event.second"]


def test_a_transaction_is_repeated_only_with_the_same_results(disk: Path) -> None:
    """What another process commits between the two attempts may contradict what the first one has read."""
    database = SqliteDatabase(disk / "data" / "x.db")
    other = SqliteDatabase(disk / "data" / "x.db")
    with other.write() as transaction:
        transaction.run("CREATE TABLE numbers (value INTEGER)")
    database.keep_reserve()
    fill_up(disk)
    release = Reserve.release

    def release_and_write(reserve: Reserve) -> None:
        release(reserve)
        with other.write() as transaction:
            transaction.run("INSERT INTO numbers VALUES (1)")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reserve, "release", release_and_write)
        with pytest.raises(StoreUnavailableError, match="disk is full"), database.write() as transaction:
            found = transaction.all("SELECT value FROM numbers")
            transaction.run("INSERT INTO numbers SELECT zeroblob(100000)")
    assert found == []
    with database.read() as reading:
        assert reading.all("SELECT value FROM numbers") == [(1,)]
    database.close()
    other.close()


def test_a_reserve_is_not_made_on_a_disk_that_is_nearly_full(disk: Path) -> None:
    """It would be the thing that fills it."""
    (disk / "ballast").write_bytes(bytes(free_bytes(disk) - (1 << 20)))
    Reserve(disk / "x.db").create()
    assert not _reserve(disk / "x.db").exists()
