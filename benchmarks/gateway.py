"""What the gateway adds to the worker's own answer, and how fast a killed worker is noticed and replaced."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Result, Samples, Size, Skipped, added, at_most, interleaved, milliseconds
from tests.gateway.fake_codex_channel import FAKE
from tests.gateway.gateway_process import CODEX, GatewayProcess, codex_home, fake_program
from tests.gateway.responses_stub import provider

_PROMPT = "words=5"
_UNSEEN_SECONDS = 0.2  # below the shortest wait before a restart, and beyond the bar


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amounts:
    requests: int
    kills: int


_AMOUNTS = {
    Size.FULL: _Amounts(requests=400, kills=10),
    Size.QUICK: _Amounts(requests=60, kills=3),
    Size.SMALLEST: _Amounts(requests=2, kills=1),
}


def measure(size: Size) -> list[Result]:
    """Latency over the fake worker; recovery of the fake and, where it is installed, of the real codex."""
    amounts = _AMOUNTS[size]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with _gateway(root, fake_program(root / "bin"), root / "home") as (gateway, ready):
            results: list[Result] = [
                *_latency(gateway, amounts),
                _ready("fake", ready),
                *_deaths("fake", gateway, amounts),
            ]
        if size is Size.SMALLEST or not CODEX.exists():
            return [*results, Skipped(name="codex", reason="the real codex is for longer runs, after `make codex`")]
        with provider() as stub, codex_home() as home:
            stub.configure(home)
            with _gateway(root / "real", CODEX, home) as (gateway, ready):
                return [*results, _ready("codex", ready), *_deaths("codex", gateway, amounts)]


@contextmanager
def _gateway(root: Path, program: Path, home: Path) -> Iterator[tuple[GatewayProcess, float]]:
    """A gateway that is ready, and the seconds that took from the start of the server on."""
    # Each death is the first after a stable life, so the backoff is its initial half second.
    environ = {
        "CODEX_BIN": str(program),
        "CODEX_HOME": str(home),
        "WORKER_RESTART_MAX": "1000",
        "WORKER_STABLE_UPTIME_MS": "1",
    }
    gateway = GatewayProcess(root, environ)
    began = time.perf_counter()
    gateway.start()
    try:
        yield gateway, time.perf_counter() - began
    finally:
        gateway.stop()


def _latency(gateway: GatewayProcess, amounts: _Amounts) -> list[Result]:
    with _raw() as raw:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
        contenders = (raw, lambda: _post(connection, stream=False), lambda: _post(connection, stream=True))
        bare, whole, streamed = interleaved(*contenders, rounds=amounts.requests, warm_up=5)
        connection.close()
    return [
        _added("added_to_a_whole_answer", whole, bare),
        _added("added_to_a_stream", streamed, bare),
    ]


def _added(name: str, ours: Samples, bare: Samples) -> Figure:
    facts = {**ours.facts("gateway"), **bare.facts("json_rpc")}
    return Figure(name=name, value=milliseconds(added(ours, bare).p50), unit="ms", bar=at_most(5.0), facts=facts)


def _post(connection: http.client.HTTPConnection, *, stream: bool) -> float:
    body = {"model": "gpt-5.2", "stream": stream, "messages": [{"role": "user", "content": _PROMPT}]}
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    seconds = time.perf_counter() - began
    assert answer.status == 200 and b"w4" in data, data[:300]
    return seconds


@contextmanager
def _raw() -> Iterator[Callable[[], float]]:
    """The same turn, straight over the worker's pipes."""
    argv = [sys.executable, "-I", "-S", str(FAKE), "app-server"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None

        def call(method: str, params: dict[str, Any], until: str) -> dict[str, Any]:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n")
            process.stdin.flush()
            found: dict[str, Any] = {}
            for line in process.stdout:
                message = json.loads(line)
                found = message.get("result") or found
                if until in (message.get("method"), "answer" if message.get("id") else None):
                    break
            return found

        def turn() -> float:
            began = time.perf_counter()
            thread = call("thread/start", {}, "answer")["thread"]["id"]
            call("turn/start", {"threadId": thread, "input": [{"type": "text", "text": _PROMPT}]}, "turn/completed")
            return time.perf_counter() - began

        call("initialize", {}, "answer")
        yield turn
        process.stdin.close()


def _ready(name: str, seconds: float) -> Figure:
    return Figure(name=f"{name}_ready_after_start", value=round(seconds, 3), unit="s", bar=at_most(8.0))


def _deaths(name: str, gateway: GatewayProcess, amounts: _Amounts) -> list[Result]:
    """From kill -9 to readiness false, and to the next answer of a worker that is ready."""
    noticed, restored = [], []
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    _readiness(connection)  # the first answer of /readyz loads what it checks with
    for number in range(amounts.kills):
        pid = gateway.await_ready()["pid"]
        os.kill(pid, signal.SIGKILL)
        killed = time.perf_counter()
        while _readiness(connection) == 200 and not _replaced(gateway, number, killed):
            pass
        noticed.append(time.perf_counter() - killed)
        while _readiness(connection) != 200:
            time.sleep(0.002)
        restored.append(time.perf_counter() - killed)
        assert gateway.worker()["restarts_total"] == number + 1
    connection.close()
    false, back = Samples.of(noticed), Samples.of(restored)
    facts = back.facts("restored")
    return [
        Figure(
            name=f"{name}_readiness_false_after_death",
            value=milliseconds(max(false.values)),
            unit="ms",
            bar=at_most(100.0),
            facts=false.facts("noticed"),
        ),
        Figure(name=f"{name}_restored_after_kill", value=round(back.p50, 3), unit="s", bar=at_most(1.5), facts=facts),
    ]


def _replaced(gateway: GatewayProcess, restarts: int, killed: float) -> bool:
    """Whether the successor was ready before anybody looked; asked when it may have been."""
    return time.perf_counter() - killed > _UNSEEN_SECONDS and gateway.worker()["restarts_total"] > restarts


def _readiness(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    answer.read()
    return answer.status
