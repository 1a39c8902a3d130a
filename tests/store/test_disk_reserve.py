"""The store's reserve: space for the ends of commands on a disk that is full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_server.store import open_store
from debug_server.store.disk_reserve import Reserve
from tests.small_disk import fill_up, free_bytes, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB."""
    with small_disk(tmp_path / "disk", mebibytes=48) as place:
        yield place


def _reserve(database: Path) -> Path:
    return database.with_name(f"{database.name}-reserve")


def test_a_full_disk_costs_the_store_its_reserve_and_nothing_else(disk: Path) -> None:
    """A commit that finds no space fails once; the next one has the reserve."""
    database = disk / "data" / "metadata.db"
    with open_store(f"sqlite:///{database}") as store:
        store.keep_reserve()
        assert _reserve(database).exists()
        fill_up(disk)
        failures = 0
        for number in range(60):
            try:
                store.events.append(f"event.{number}", data={"text": "x" * 1000})
            except Exception:  # noqa: BLE001 - counted
                failures += 1
        assert failures <= 1
        assert not _reserve(database).exists()
        (disk / "rest").unlink()


def test_a_reserve_is_not_made_on_a_disk_that_is_nearly_full(disk: Path) -> None:
    """It would be the thing that fills it."""
    (disk / "ballast").write_bytes(bytes(free_bytes(disk) - (1 << 20)))
    Reserve(disk / "x.db").create()
    assert not _reserve(disk / "x.db").exists()
