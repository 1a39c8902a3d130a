"""Starting, restarting, giving up, draining: real processes under real keepers."""

from __future__ import annotations

import asyncio
import os
import signal

from debug_server.workers.interface import WorkerChange
from debug_server.workers.spec import HandshakeReadiness
from tests.running import Bench
from tests.workers.supervising import Echo, shake_hands, spec, supervised, timing, until

HANDSHAKE = HandshakeReadiness(protocol="echo")


def test_a_killed_worker_is_replaced_and_counted(bench: Bench) -> None:
    """Each kill -9 is one exit with its signal and one restart; the successor is another process."""

    async def check() -> None:
        async with supervised(bench, spec(bench)) as workers:
            worker = workers.pick("echo")
            changes: list[WorkerChange] = []
            worker.subscribe(changes.append)
            for kills in range(1, 4):
                assert await worker.wait_for_ready(10)
                os.kill(worker.status()["pid"], signal.SIGKILL)
                await until(lambda: worker.machine.generation == kills + 1 and worker.status()["pid"])  # noqa: B023
                assert worker.status()["restarts_total"] == kills
                assert workers.metric("codex_worker_restarts_total") == kills
                assert workers.metric("codex_worker_restarts_inc_total") == kills
                assert worker.status()["last_exit"]["signal"] == signal.SIGKILL
            assert await worker.wait_for_ready(10)
            assert workers.metric("codex_worker_ready") == 1
            assert workers.metric("codex_worker_latency_ms") == worker.status()["startup_latency_ms"] > 0
        assert worker.status()["health"]["liveness"]["reason"] == "shutdown_complete"
        exits = [change.exit.reason for change in changes if change.exit is not None]
        assert exits == ["signaled"] * 3 + ["cancelled"]

    asyncio.run(check())


def test_requests_and_answers_over_a_handshake(bench: Bench) -> None:
    """A handshake's conversation answers borrowers, in megabytes too; its details are in the status."""

    async def check() -> None:
        async with supervised(
            bench, spec(bench, "mute", readiness=HANDSHAKE), handshakes={"echo": shake_hands}
        ) as workers:
            worker = workers.pick("echo")
            assert await worker.wait_for_ready(10)
            with worker.borrow() as generation:
                assert worker.in_flight == 1
                echo = generation.conversation
                assert isinstance(echo, Echo)
                for size in (1, 1000, 100_000, 3 << 20):
                    assert await echo.ask(b"x" * size) == b"x" * size
            assert worker.status()["health"]["readiness"]["handshake"] == {"greeting": "hello"}
        assert echo.closed == 1

    asyncio.run(check())


def test_a_crash_loop_ends_in_the_failed_state(bench: Bench) -> None:
    """The crash loop of a program that ends at once comes to the failed state, and an operator's reset tries again."""

    async def check() -> None:
        crashing = spec(bench, "mute", "--exit-after", 0, "--status", 3, timing=timing(restart_max=4))
        async with supervised(bench, crashing) as workers:
            worker = workers.pick("echo")
            await until(lambda: worker.status()["phase"] == "failed")
            status = worker.status()
            assert (status["running"], status["ready"], status["restarts_total"]) == (False, False, 4)
            assert status["consecutive_failures"] == 5
            assert status["last_exit"]["code"] == 3
            assert status["health"]["liveness"]["live"] is False
            assert status["health"]["liveness"]["reason"] == "restart_limit_exceeded"
            assert status["health"]["readiness"]["reason"] == "worker_exit"
            assert await worker.wait_for_ready(10) is False
            worker.reset()
            await until(lambda: worker.status()["restarts_total"] == 8)
            await until(lambda: worker.status()["phase"] == "failed")

    asyncio.run(check())
