"""Quotas: how they are checked and counted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from debug_server.errors import InvalidInputError, QuotaExceededError
from debug_server.service.caller import LOCAL, Caller
from debug_server.service.quotas import Quotas, check_quotas
from debug_server.store import MetadataStore, open_store


def caller(**quotas: float) -> Caller:
    return Caller(token_id=1, name="t", scopes=frozenset(), quotas=quotas)


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def quotas_of(store: MetadataStore, clock: Clock | None = None) -> Quotas:
    async def count(function: Any, token_id: int) -> int:
        found: int = function(token_id)
        return found

    return Quotas(store, count, clock or Clock())


@pytest.fixture
def store(tmp_path: Path) -> MetadataStore:
    opened = open_store(f"sqlite:///{tmp_path}/m.db")
    opened.tokens.create("t", ["admin"])
    return opened


@pytest.mark.parametrize(
    "quotas",
    [{"cpus": 1}, {"sessions": 0}, {"sessions": -1}, {"commands": "3"}, {"commands": True}, {"sessions": 1e99}],
)
def test_bad_quotas(quotas: dict[str, Any]) -> None:
    """An unknown name or a value that is no positive number is refused by name."""
    with pytest.raises(InvalidInputError, match=next(iter(quotas))):
        check_quotas(quotas)


def test_the_bucket_refills(store: MetadataStore) -> None:
    """A rate of two lets two through, then one each half second; it tells how long to wait."""
    clock = Clock()
    quotas, who = quotas_of(store, clock), caller(requests_per_second=2)
    quotas.take_request(who)
    quotas.take_request(who)
    with pytest.raises(QuotaExceededError) as refused:
        quotas.take_request(who)
    assert refused.value.retry_after == pytest.approx(0.5)
    clock.time += 0.5
    quotas.take_request(who)
    clock.time += 3600
    quotas.take_request(who)
    quotas.take_request(who)
    with pytest.raises(QuotaExceededError):
        quotas.take_request(who)
    quotas.take_request(LOCAL)


def test_slow_rates_begin_with_one(store: MetadataStore) -> None:
    """One request in ten seconds: the first is let through."""
    quotas, who = quotas_of(store), caller(requests_per_second=0.1)
    quotas.take_request(who)
    with pytest.raises(QuotaExceededError) as refused:
        quotas.take_request(who)
    assert refused.value.retry_after == pytest.approx(10)


def test_what_is_on_its_way_counts(store: MetadataStore) -> None:
    """Room that is held and rows that exist are counted together, and a refusal or an error gives the room back."""

    async def work() -> None:
        quotas, who = quotas_of(store), caller(sessions=2)
        async with quotas.reserve(who, sessions=1, commands=99):
            store.sessions.create(owner_token_id=1)
            with pytest.raises(QuotaExceededError, match="2 sessions"):
                async with quotas.reserve(who, sessions=1):
                    raise AssertionError
        with pytest.raises(ZeroDivisionError):
            async with quotas.reserve(who, sessions=1):
                raise ZeroDivisionError
        async with quotas.reserve(who, sessions=1):
            pass

    asyncio.run(work())
