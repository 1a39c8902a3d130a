"""Kills the worker repeatedly under many streams and checks that every request has one end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.gateway.gateway_process import GatewayProcess, serving

_WORDS = 12
_ANSWER = " ".join(f"w{number}" for number in range(_WORDS))
_RETRYABLE = {"worker_not_ready", "worker_exited", "worker_unavailable", "worker_busy"}


@dataclass(slots=True)
class Tally:
    """How requests ended."""

    ends: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    begun: int = 0  # streams of which a first byte came
    wrong: list[str] = field(default_factory=list)


async def _one(client: httpx.AsyncClient, tally: Tally) -> None:
    """One stream to its end, which must be a whole answer or one retryable error."""
    tally.sent += 1
    body = {"model": "gpt-5.2", "stream": True, "messages": [{"role": "user", "content": f"words={_WORDS} delay=4"}]}
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        if answer.status_code != 200:
            error = json.loads(await answer.aread())["error"]
            tally.ends[error["code"]] += 1
            if not error.get("retryable") or error["code"] not in _RETRYABLE or "retry-after" not in answer.headers:
                tally.wrong.append(f"{answer.status_code} {error}")
            return
        tally.begun += 1
        lines = [line.removeprefix("data: ") async for line in answer.aiter_lines() if line.startswith("data: ")]
    _judge(lines, tally)


def _judge(lines: list[str], tally: Tally) -> None:
    events = [json.loads(line) for line in lines if line != "[DONE]"]
    errors = [event["error"] for event in events if "error" in event]
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event.get("choices"))
    whole = lines[-1:] == ["[DONE]"] and not errors
    if whole:
        tally.ends["whole"] += 1
        if text != _ANSWER:
            tally.wrong.append(f"a whole answer that is {text!r}")
    elif len(errors) == 1 and "error" in events[-1] and errors[0].get("retryable") and _ANSWER.startswith(text):
        tally.ends["broken"] += 1
    else:
        tally.wrong.append(f"an end that is neither: {lines[-3:]}")


async def _stream_for_ever(client: httpx.AsyncClient, tally: Tally, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        async with asyncio.timeout(60):  # none hangs
            before = tally.ends["worker_not_ready"]
            await _one(client, tally)
        if tally.ends["worker_not_ready"] > before:
            await asyncio.sleep(0.02)


async def _kill(gateway: GatewayProcess, client: httpx.AsyncClient, chance: random.Random, kills: int) -> None:
    for number in range(kills):
        pid = await _ready_pid(client, number)
        await asyncio.sleep(chance.uniform(0, 0.12))
        os.kill(pid, signal.SIGKILL)
    await _ready_pid(client, kills)


async def _ready_pid(client: httpx.AsyncClient, restarts: int) -> int:
    """The pid of the worker after so many restarts, once it is ready."""
    async with asyncio.timeout(60):
        while True:
            status = (await client.get("/healthz")).json()["worker_supervisor"]
            assert status["restarts_total"] <= restarts, "a restart nobody caused"
            if status["ready"] and status["restarts_total"] == restarts:
                return int(status["pid"])
            await asyncio.sleep(0.01)


async def _campaign(gateway: GatewayProcess, *, kills: int, streams: int, seed: int) -> Tally:
    tally, stopping = Tally(), asyncio.Event()
    # Shorter than the server keeps them: one that it closes this very moment would look like a lost request.
    limits = httpx.Limits(max_connections=streams + 4, keepalive_expiry=1.0)
    async with httpx.AsyncClient(base_url=gateway.url, limits=limits, timeout=60) as client:
        readers = [asyncio.ensure_future(_stream_for_ever(client, tally, stopping)) for _ in range(streams)]
        await _kill(gateway, client, random.Random(seed), kills)
        stopping.set()
        await asyncio.gather(*readers)
        await _one(client, tally)
    return tally


def run_campaign(root: Path, *, kills: int, streams: int = 32, seed: int = 1) -> Tally:
    """Kill, then check the counters against what was seen; AssertionError says what is wrong."""
    environ = {
        "WORKER_MAX_CONCURRENCY": str(streams),
        "PROXY_SSE_MAX_CONCURRENCY": str(streams + 4),
        "WORKER_RESTART_MAX": "1000000",
        "WORKER_BACKOFF_INITIAL_MS": "5",
        "WORKER_BACKOFF_MAX_MS": "20",
    }
    with serving(root, environ) as gateway:
        tally = asyncio.run(_campaign(gateway, kills=kills, streams=streams, seed=seed))
        assert not tally.wrong, tally.wrong[:5]
        assert sum(tally.ends.values()) == tally.sent
        assert tally.ends["whole"] > 0
        assert gateway.worker()["restarts_total"] == kills
        assert gateway.metrics("codex_worker_restarts_total") == kills
        assert gateway.metrics("codex_http_requests_total") == tally.sent
        assert gateway.metrics("codex_stream_end_total") == tally.begun
        assert gateway.metrics("codex_streams_active") == 0
        assert gateway.worker()["in_flight"] == 0
        assert gateway.stop() == 0
    return tally
