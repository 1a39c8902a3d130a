"""A caller is recognised by reading alone; the use of its token is noted beside the request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from debug_server.engine import LocalEngine, Sessions
from debug_server.service import Service
from tests.running import Bench, eventually
from tests.store.away import away

MakeBench = Callable[..., Bench]
WRITER_SECONDS = 120.0  # that a writer waits for a lock: so much longer than a stall that the two are not mixed up


def _service(bench: Bench) -> Service:
    sessions = Sessions.of(bench.store, bench.settings)
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor, sessions=sessions)
    return Service(store=bench.store, engine=engine, sessions=sessions, paths=bench.settings.paths)


def test_a_caller_is_known_while_nothing_can_be_written(make_bench: MakeBench) -> None:
    """A database that another process has locked does not keep a token from being recognised, and does not slow it."""
    bench = make_bench(busy_seconds=WRITER_SECONDS)
    service = _service(bench)
    token, secret = bench.store.tokens.create("t", ["read"])
    began = time.monotonic()
    with away(bench.database_url):
        callers = [asyncio.run(service.authenticate(secret)) for _ in range(3)]
        assert time.monotonic() - began < WRITER_SECONDS / 2
        assert bench.store.tokens.get(token.id).last_used_at is None
    assert {caller.token_id for caller in callers} == {token.id}
    eventually(lambda: bench.store.tokens.get(token.id).last_used_at, what="the use that was noted meanwhile")


def test_a_use_is_noted_beside_the_request(make_bench: MakeBench) -> None:
    """Soon after the first request of a minute the token's row says so; the sync way notes it at once if it can."""
    bench = make_bench(busy_seconds=1.0)
    service = _service(bench)
    token, secret = bench.store.tokens.create("t", ["read"])
    asyncio.run(service.authenticate(secret))
    eventually(lambda: bench.store.tokens.get(token.id).last_used_at, what="the time of last use")
    other, its_secret = bench.store.tokens.create("u", ["read"])
    with away(bench.database_url):
        assert bench.store.tokens.authenticate(its_secret) is not None
    assert bench.store.tokens.get(other.id).last_used_at is None
