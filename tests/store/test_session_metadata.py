"""Several writers of one session's metadata."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from debug_server.store import MetadataStore, open_store


def test_writers_at_once_lose_nothing(store: MetadataStore, database_url: str) -> None:
    """Two stores merge forty keys into one session at once: all are there, with what was there before."""
    session = store.sessions.create(metadata={"mine": True})
    with open_store(database_url) as other, ThreadPoolExecutor(4) as pool:
        stores = (store, other)
        done = pool.map(lambda n: stores[n % 2].sessions.update(session.id, merge={f"k{n}": n}), range(40))
        assert len(list(done)) == 40
    expected = {"mine": True, **{f"k{number}": number for number in range(40)}}
    assert store.sessions.get(session.id).metadata == expected
