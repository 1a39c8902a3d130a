"""Fixtures: one store on each kind of database, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from debug_server.model import Session
from debug_server.store import MetadataStore, open_store

from .postgres_cluster import Cluster, ClusterUnavailableError, running_cluster


class Clock:
    """A wall clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime(2024, 5, 1, 12, 0, 0, 123457, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def move(self, seconds: float) -> datetime:
        self.time += timedelta(seconds=seconds)
        return self.time


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    pytest.importorskip("psycopg")
    cluster = running_cluster()
    try:
        started = cluster.__enter__()
    except ClusterUnavailableError as error:
        pytest.skip(str(error))
    yield started
    cluster.__exit__(None, None, None)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/data/metadata.db"
        return
    monkeypatch.setenv("DEBUG_SERVER_SEAL_KEY_FILE", str(tmp_path / "data" / "seal.key"))
    cluster: Cluster = request.getfixturevalue("postgres")
    with cluster.database() as url:
        yield url


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(database_url: str, clock: Clock) -> Iterator[MetadataStore]:
    with open_store(database_url, now=clock) as opened:
        yield opened


@pytest.fixture
def session(store: MetadataStore) -> Session:
    return store.sessions.create()
