"""One conformance suite for every way to say ready."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from debug_server.workers import spec as declared
from debug_server.workers.readiness import Probe, ProbeContext, ProbeFailedError, open_probe
from debug_server.workers.spec import Readiness, WorkerSpec
from tests.other_users import NOBODY, taken
from tests.running import Bench, lasting_port
from tests.workers.supervising import argv, shake_hands, supervised, timing, until


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its declaration, and the program's word for it."""

    name: str
    make: Callable[[Path], tuple[Readiness, str]]
    asks: bool = False  # whether its watchdog can tell a worker that hangs


def _http(_: Path) -> tuple[Readiness, str]:
    port = lasting_port()
    return declared.HttpReadiness(url=f"http://127.0.0.1:{port}/", interval=0.02), f"http:{port}"


def _exec(root: Path) -> tuple[Readiness, str]:
    mark = root / "mark"
    probe = [sys.executable, "-I", "-S", "-c", f"import os,sys; sys.exit(not os.path.exists({str(mark)!r}))"]
    return declared.ExecReadiness(argv=probe, interval=0.02), f"exec:{mark}"


KINDS = [
    Kind("handshake", lambda _: (declared.HandshakeReadiness(protocol="echo"), "mute"), asks=True),
    Kind("line", lambda _: (declared.StdoutReadiness(line="serving requests"), "stdout")),
    Kind("json", lambda _: (declared.StdoutReadiness(), "json")),
    Kind("notify", lambda _: (declared.NotifyReadiness(), "notify"), asks=True),
    Kind("fd", lambda _: (declared.FdReadiness(fd=3), "fd")),
    Kind("http", _http, asks=True),
    Kind("exec", _exec, asks=True),
]


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each in turn."""
    found: Kind = request.param
    return found


def _spec(bench: Bench, kind: Kind, *words: object, **times: Any) -> WorkerSpec:
    readiness, word = kind.make(bench.root)
    return WorkerSpec(
        name="probed", argv=argv(word, *words), readiness=readiness, cwd=bench.workspace, timing=timing(**times)
    )


def test_it_is_ready_when_it_says_so_and_not_before(bench: Bench, kind: Kind) -> None:
    """Pending while it warms up, ready after its word, not ready at once when it is killed, ready again."""

    async def check() -> None:
        gate = bench.root / "gate"
        warming = _spec(bench, kind, "--after", gate, "--delay", 0.15)
        async with supervised(bench, warming, handshakes={"echo": shake_hands}) as workers:
            worker = workers.pick("probed")
            await until(lambda: worker.status()["health"]["readiness"]["reason"] == "handshake_pending")
            gate.touch()
            assert await worker.wait_for_ready(60)
            status = worker.status()
            assert status["startup_latency_ms"] >= 150
            assert status["health"]["readiness"]["reason"] == "handshake_complete"
            (bench.root / "mark").unlink(missing_ok=True)
            with worker.borrow() as generation:
                os.kill(status["pid"], signal.SIGKILL)
                await generation.ending.wait()
                assert not worker.is_ready  # before its successor can be
            assert await worker.wait_for_ready(60)
            assert worker.status()["restarts_total"] == 1

    asyncio.run(check())


def test_one_that_never_says_so_is_ended_and_tried_again(bench: Bench, kind: Kind) -> None:
    """KILL where TERM does not help; the reason is handshake_failed, and the restarts are bounded."""

    async def check() -> None:
        late = _spec(bench, kind, "--delay", 60, "--deaf", startup_timeout=0.2, restart_max=1)
        async with supervised(bench, late, handshakes={"echo": shake_hands}) as workers:
            worker = workers.pick("probed")
            await until(lambda: worker.status()["phase"] == "failed")
            status = worker.status()
            assert status["health"]["readiness"]["reason"] == "handshake_failed"
            assert "not ready within 200 ms" in status["last_exit"]["error"]
            assert (status["restarts_total"], status["last_ready_at"]) == (1, None)

    asyncio.run(check())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.asks], ids=lambda kind: kind.name)
def test_one_that_stops_answering_is_replaced(bench: Bench, kind: Kind) -> None:
    """The watchdog asks again and again, and a row of failed checks is a failure."""

    async def check() -> None:
        times = {"watchdog_interval": 0.1, "watchdog_timeout": 0.5, "watchdog_failures": 2}
        told = bench.root / "hang"
        hanging = _spec(bench, kind, "--hang-when", told, **times)
        async with supervised(bench, hanging, handshakes={"echo": shake_hands}) as workers:
            worker = workers.pick("probed")
            assert await worker.wait_for_ready(60)
            told.touch()
            await until(lambda: worker.status()["restarts_total"] >= 1)
            assert "2 checks in a row failed" in worker.status()["last_exit"]["error"]
            assert worker.status()["consecutive_failures"] == 1

    asyncio.run(check())


def _notify_probe(folder: Path, *, adopted: bool = False) -> Probe:
    spec = WorkerSpec(name="w", argv=["true"], readiness=declared.NotifyReadiness())
    nobody: Any = None  # this probe needs no runner
    return open_probe(ProbeContext(runner=nobody, spec=spec, instance=0, folder=folder, handshakes={}, adopted=adopted))


def test_nobody_can_take_the_notify_socket_beforehand(tmp_path: Path) -> None:
    """It is a file in the worker's private folder; where the path is too long, a name that cannot be foretold."""

    async def check(folder: Path) -> str:
        first = _notify_probe(folder)
        address = first.env["NOTIFY_SOCKET"]
        first.close()
        adopted = _notify_probe(folder, adopted=True)
        assert adopted.env["NOTIFY_SOCKET"] == address, "the worker that runs already sends there"
        adopted.close()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as taken:
            if address.startswith("@"):
                taken.bind("\0" + address[1:])
            successor = _notify_probe(folder)  # the next run is not kept from its start
            again = successor.env["NOTIFY_SOCKET"]
            successor.close()
        assert (again == address) is not address.startswith("@")
        return address

    with tempfile.TemporaryDirectory() as short:
        assert asyncio.run(check(Path(short))) == f"{short}/notify.sock"
        assert not os.listdir(short)
    deep = tmp_path / ("long" * 25)
    deep.mkdir()
    assert re.fullmatch("@debug-server/[0-9a-f]{32}", asyncio.run(check(deep)))


@contextlib.contextmanager
def _answering(head: bytes, more: bytes, pause: float = 0.0) -> Iterator[tuple[str, list[int]]]:
    """An HTTP server with an answer that never ends; and how many bytes it sent."""
    sent, over = [0], threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connection:
            assert b"accept-encoding: identity\r\n" in connection.recv(65536).lower()
            connection.sendall(head)
            while not over.wait(pause):
                sent[0] += connection.send(more)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/", sent
        finally:
            over.set()
            server.join(60)


async def _check(url: str, folder: Path, seconds: float = 60.0) -> None:
    readiness = declared.HttpReadiness(url=url, timeout=seconds)
    nobody: Any = None  # this probe needs no runner
    spec = WorkerSpec(name="w", argv=["true"], readiness=readiness)
    async with asyncio.timeout(30):
        await open_probe(ProbeContext(runner=nobody, spec=spec, instance=0, folder=folder, handshakes={})).check()


def test_a_body_without_end_is_not_read(tmp_path: Path) -> None:
    """The status decides."""
    with _answering(b"HTTP/1.1 200 OK\r\n\r\n", bytes(1 << 16)) as (url, sent):
        asyncio.run(_check(url, tmp_path))
        assert sent[0] < 64 << 20, "more than the sockets hold"


def test_an_answer_is_bounded_and_in_time(tmp_path: Path) -> None:
    """Headers without end, and an answer that comes drop by drop."""
    with (
        _answering(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536) as (url, sent),
        pytest.raises(ProbeFailedError, match="does not answer"),
    ):
        asyncio.run(_check(url, tmp_path))
    assert sent[0] < 64 << 20
    with (
        _answering(b"HTTP/1.1 200 OK\r\n", b"X: x\r\n", pause=0.05) as (url, _),
        pytest.raises(ProbeFailedError, match=r"does not answer within 0\.4 s"),
    ):
        asyncio.run(_check(url, tmp_path, seconds=0.4))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_s_port_is_not_the_worker(bench: Bench) -> None:
    """Nothing is sent there, the worker is not ready, and its last exit says whose port it is."""

    async def check(url: str, seconds: float) -> str:
        told = WorkerSpec(
            name="probed",
            argv=argv("mute"),
            readiness=declared.HttpReadiness(url=url, interval=0.02),
            cwd=bench.workspace,
            timing=timing(startup_timeout=seconds, restart_max=0),
        )
        async with supervised(bench, told) as workers:
            worker = workers.pick("probed")
            await until(lambda: worker.status()["phase"] == "failed")
            assert worker.status()["last_ready_at"] is None
            return str(worker.status()["last_exit"]["error"])

    with taken("127.0.0.1") as thief:
        url = f"http://127.0.0.1:{thief.port}"
        for seconds in (1.0, 40.0):
            error = asyncio.run(check(f"{url}/", seconds))
            if "it was not ready within" not in error:  # else the machine was too slow for a single check
                break
        assert f"{url} is served by user " in error and f"uid {NOBODY}" in error
        assert not thief.heard()
