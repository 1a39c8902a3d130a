"""Workers killed under load, and a server that leaves under load: no request without its one end."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.gateway.gateway_process import serving
from tests.gateway.worker_kills import run_campaign
from tests.running import carrying, eventually

pytestmark = pytest.mark.timeout(180)


def test_a_worker_killed_at_random_moments_under_32_streams(tmp_path: Path, nothing_left: None) -> None:
    """Every request ends in a whole answer or one retryable error, the counters are exact, no process is left.

    The short form; ``make soak-gateway`` kills 500 times.
    """
    tally = run_campaign(tmp_path, kills=6)
    assert tally.ends["broken"] + tally.ends["worker_exited"] > 0
    eventually(lambda: not carrying(str(tmp_path)), what="the end of every process")


async def _whole_stream(client: httpx.AsyncClient, begun: asyncio.Semaphore, gate: Path) -> str:
    asked = {"role": "user", "content": f"words=30 delay=30 gate={gate}"}
    body = {"model": "gpt-5.2", "stream": True, "messages": [asked]}
    text = ""
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        begun.release()
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                return text
            if line.startswith("data: "):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
    return f"cut off after {text!r}"


def test_a_drain_loses_no_stream_that_can_finish_within_the_grace(tmp_path: Path, nothing_left: None) -> None:
    """SIGTERM with 32 streams open: all of them come whole, new requests are refused, and the server leaves."""
    environ = {
        "WORKER_MAX_CONCURRENCY": "32",
        "PROXY_SSE_MAX_CONCURRENCY": "32",
        "WORKER_SHUTDOWN_GRACE_MS": "40000",
    }
    gate = tmp_path / "gate"  # streams are under way until somebody was refused

    async def drain() -> list[str]:
        begun = asyncio.Semaphore(0)
        async with httpx.AsyncClient(
            base_url=gateway.url, timeout=60, limits=httpx.Limits(max_connections=40)
        ) as client:
            streams = [asyncio.ensure_future(_whole_stream(client, begun, gate)) for _ in range(32)]
            for _ in streams:
                await begun.acquire()
            assert gateway.process is not None
            gateway.process.send_signal(signal.SIGTERM)
            refused = await _refused(client)
            assert (refused["code"], refused["retryable"]) == ("worker_not_ready", True)
            gate.touch()
            return await asyncio.gather(*streams)

    with serving(tmp_path, environ) as gateway:
        texts = asyncio.run(drain())
        assert gateway.process is not None
        assert gateway.process.wait(60) == 0
    assert texts == [" ".join(f"w{number}" for number in range(30))] * 32


async def _refused(client: httpx.AsyncClient) -> dict[str, object]:
    """The first refusal; the signal takes a moment to arrive."""
    body = {"model": "gpt-5.2", "messages": [{"role": "user", "content": "words=1"}]}
    for _ in range(50):
        answer = await client.post("/v1/chat/completions", json=body)
        if answer.status_code == 503:
            found: dict[str, object] = answer.json()["error"]
            return found
    raise AssertionError("new requests are still taken")
