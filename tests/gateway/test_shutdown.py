"""SIGTERM under load: what can finish within the worker's grace does, everything else gets one retryable error."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.gateway_process import GatewayProcess, serving
from tests.running import carrying, eventually

pytestmark = pytest.mark.timeout(180)
SERVERS = [("gateway", "serve"), ("serve", "--no-grpc")]
GRACE = 100  # seconds, of the server: so long that nobody waits for it by mistake


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One request as its client saw it end."""

    status: int
    headers: httpx.Headers
    text: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """Of a stream, without its last word."""
        lines = [line[6:] for line in self.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    @property
    def error(self) -> dict[str, Any]:
        """Of a refusal, or the last event of a stream that broke."""
        body = json.loads(self.text) if self.status != 200 else self.events[-1]
        found: dict[str, Any] = body.get("error", body)
        return found


class Load:
    """Requests under way, each in a thread."""

    def __init__(self, gateway: GatewayProcess, threads: ThreadPoolExecutor) -> None:
        self._gateway = gateway
        self._threads = threads

    def chat(self, text: str, **more: Any) -> Future[Answered]:
        """Returns once the answer has begun, if it is a stream."""
        asked = {"model": "gpt-5.2", "messages": [{"role": "user", "content": text}], **more}
        return self._send("/v1/chat/completions", asked)

    def responses(self, text: str, **more: Any) -> Future[Answered]:
        """The same for the other API."""
        return self._send("/v1/responses", {"model": "gpt-5.2", "input": text, **more})

    def _send(self, path: str, body: dict[str, Any]) -> Future[Answered]:
        begun = threading.Event()
        found = self._threads.submit(self._request, path, body, begun.set)
        found.add_done_callback(lambda _: begun.set())
        if body.get("stream"):
            assert begun.wait(60)
        return found

    def _request(self, path: str, body: dict[str, Any], begun: Callable[[], None]) -> Answered:
        with (
            httpx.Client(base_url=self._gateway.url, timeout=60) as client,
            client.stream("POST", path, json=body) as answer,
        ):
            text = ""
            for piece in answer.iter_text():  # raises when the connection is cut
                begun()
                text += piece
            return Answered(status=answer.status_code, headers=answer.headers, text=text)

    def under_way(self, count: int) -> None:
        """Wait until the worker has so many."""
        eventually(lambda: self._gateway.worker()["in_flight"] == count, what=f"{count} requests under way")


@contextlib.contextmanager
def loaded(
    root: Path, arguments: tuple[str, ...], grace_ms: int, mode: str = ""
) -> Iterator[tuple[GatewayProcess, Load]]:
    """A server with a worker's grace, and whoever sends it requests."""
    environ = {
        "PROXY_USE_APP_SERVER": "true",
        "WORKER_SHUTDOWN_GRACE_MS": str(grace_ms),
        "WORKER_MAX_CONCURRENCY": "5",
        "PROXY_IDLE_TIMEOUT_MS": "60000",
        "PROXY_TEST_ENDPOINTS": "true",
    }
    arguments = (*arguments, "--grace", str(GRACE))
    with ThreadPoolExecutor(16) as threads, serving(root, environ, arguments=arguments, MODE=mode) as gateway:
        yield gateway, Load(gateway, threads)


def terminate(gateway: GatewayProcess) -> None:
    """SIGTERM, and the proof that it has arrived."""
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)
    eventually(lambda: said(gateway, "shutdown_initiated"), what="a shutdown")


def said(gateway: GatewayProcess, event: str) -> list[dict[str, Any]]:
    """The log records of one name."""
    return [record for record in gateway.log if record["event"] == event]


def left(gateway: GatewayProcess) -> int:
    """The exit status of a server that leaves."""
    assert gateway.process is not None
    return gateway.process.wait(60)


def took(gateway: GatewayProcess) -> float:
    """Seconds from the signal to the worker's end."""
    began, ended = said(gateway, "shutdown_initiated")[0], said(gateway, "worker_exit_during_shutdown")[0]
    return float(ended["ts_ms"] - began["ts_ms"]) / 1000


@pytest.mark.parametrize("arguments", SERVERS, ids=" ".join)
def test_requests_that_outlast_the_grace_get_one_retryable_error(
    tmp_path: Path, arguments: tuple[str, ...], nothing_left: None
) -> None:
    """Streams of both APIs, whole answers and several choices: none is cut off, none waits for the server's grace."""
    never = f"words=4 gate={tmp_path}/never"
    with loaded(tmp_path, arguments, 1000) as (gateway, load):
        streams = [
            load.chat(never, stream=True),
            load.chat(never, stream=True, n=2),
            load.responses(never, stream=True),
        ]
        whole = [load.chat(never, n=2), load.responses(never)]
        load.under_way(5)
        terminate(gateway)
        for found in streams:
            assert found.result(60).status == 200
            assert found.result().events[-1].get("type", "error") == "error"
            assert "[DONE]" not in found.result().text
        for found in whole:
            assert found.result(60).status == 503
            assert found.result().headers["content-type"] == "application/json"
            assert int(found.result().headers["retry-after"]) >= 1
        for found in streams + whole:
            error = found.result().error
            assert (error["code"], error["retryable"]) == ("worker_exited", True)
        assert left(gateway) == 0
    assert len(said(gateway, "shutdown_grace_exceeded")) == 1
    assert 0.5 <= took(gateway) < GRACE / 2
    eventually(lambda: not carrying(str(tmp_path)), what="the end of every process")


@pytest.mark.parametrize("arguments", SERVERS, ids=" ".join)
def test_what_can_finish_within_the_grace_does(tmp_path: Path, arguments: tuple[str, ...], nothing_left: None) -> None:
    """The server answers all the time: not ready, with the reason, and new requests get the retryable refusal.

    So do those that wait in line, or have sent half a body; they do not wait for those that are under way.
    """
    gate = tmp_path / "gate"
    text = f"words=4 gate={gate}"
    with loaded(tmp_path, arguments, 60_000) as (gateway, load):
        streams = [load.chat(text, stream=True), load.responses(text, stream=True)]
        whole = [load.chat(text, n=2), load.chat(text), load.responses(text)]
        load.under_way(5)
        waits = load.chat("words=1")
        with half_sent(gateway) as half:
            eventually(lambda: gateway.get("/__test/conc")[1]["inside"] == 7, what="all requests")
            terminate(gateway)
            early = [waits.result(60), Answered(status=503, headers=httpx.Headers(), text=received(half))]
        until = time.monotonic() + 1.5  # longer than the server tells other callers to come again
        while time.monotonic() < until:
            status, body = gateway.get("/readyz")
            assert (status, body["ok"], body["health"]["readiness"]["reason"]) == (503, False, "shutdown_initiated")
            early.append(load.chat("words=1").result(60))
        for refused in early:
            assert (refused.status, refused.error["code"]) == (503, "worker_not_ready")
            assert refused.error["retryable"] is True
        gate.touch()
        assert all(found.result(60).text.endswith("data: [DONE]\n\n") for found in streams)
        assert [found.result(60).status for found in whole] == [200] * 3
        said_by = [choice["message"]["content"] for choice in json.loads(whole[0].result().text)["choices"]]
        assert said_by == ["w0 w1 w2 w3"] * 2
        assert left(gateway) == 0
    assert said(gateway, "worker_exit_during_shutdown")
    assert not said(gateway, "shutdown_grace_exceeded")


@contextlib.contextmanager
def half_sent(gateway: GatewayProcess) -> Iterator[socket.socket]:
    """A request whose body is on its way."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nContent-Length: 99\r\n\r\n"
        connection.sendall(head.encode() + b'{"model":')
        yield connection


def received(connection: socket.socket) -> str:
    """The body of what comes back."""
    data = b""
    while piece := connection.recv(1 << 16):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 "), data
    return body.decode()


@pytest.mark.parametrize("arguments", SERVERS, ids=" ".join)
def test_a_worker_that_ignores_sigterm_is_killed_when_its_grace_is_over(
    tmp_path: Path, arguments: tuple[str, ...], nothing_left: None
) -> None:
    """Without any request under way, and the log says why."""
    with loaded(tmp_path, arguments, 700, "ignore-term") as (gateway, _):
        terminate(gateway)
        assert left(gateway) == 0
    assert len(said(gateway, "shutdown_grace_exceeded")) == 1
    assert 0.5 <= took(gateway) < GRACE / 2


def test_a_restart_drains_as_a_shutdown_does(tmp_path: Path, nothing_left: None) -> None:
    """The operator's restart ends what outlasts the grace with the same error, and the next worker answers."""
    arguments = ("serve", "--no-grpc")
    with loaded(tmp_path, arguments, 700) as (gateway, load):
        broken = load.chat(f"words=4 gate={tmp_path}/never", stream=True)
        token = (tmp_path / "serve.out").read_text().partition("shown only once: ")[2].split()[0]
        authorization = {"Authorization": f"Bearer {token}"}
        assert httpx.post(f"{gateway.url}/workers/codex/restart", headers=authorization, timeout=60).status_code == 200
        assert (broken.result(60).error["code"], broken.result().error["retryable"]) == ("worker_exited", True)
        assert gateway.await_ready()["restarts_total"] == 1
        assert load.chat("words=1").result(60).status == 200
        assert len(said(gateway, "shutdown_grace_exceeded")) == 1
