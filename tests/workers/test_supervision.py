"""Starting, restarting, giving up, draining: real processes under real keepers."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from pathlib import Path

import pytest

from debug_server.errors import ConfigurationError, WorkerNotReadyError, WorkerTimeoutError
from debug_server.model import Limits, SessionStatus
from debug_server.runner.keeper import cgroup
from debug_server.workers import monitoring, supervisor
from debug_server.workers.interface import WorkerChange
from debug_server.workers.part import WorkersPart
from debug_server.workers.spec import HandshakeReadiness, Recycling
from debug_server.workers.supervisor import ServiceSupervisor
from tests.running import Bench
from tests.soak.keepers import by_handle
from tests.workers.supervising import Echo, shake_hands, spec, supervised, timing, until


def environment_of(pid: int) -> list[bytes]:
    """As the kernel keeps it."""
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def throttled(pid: int) -> int:
    """Periods in which the process's control group used up its CPU quota."""
    own, other = (
        {
            controller: path
            for _, controllers, path in (line.split(":", 2) for line in Path(file).read_text().splitlines())
            for controller in controllers.split(",")
        }
        for file in ("/proc/self/cgroup", f"/proc/{pid}/cgroup")
    )
    groups = [
        Path(directory, os.path.relpath(other[controller], own[controller]))
        for controller, directory in cgroup.own_directories().items()
        if controller in ("", "cpu")
    ]
    return max(cgroup.read_counter(os.path.normpath(group / "cpu.stat"), "nr_throttled") for group in groups)


HANDSHAKE = HandshakeReadiness(protocol="echo")


def test_a_killed_worker_is_replaced_and_counted(bench: Bench) -> None:
    """Each kill -9 is one exit with its signal and one restart; the successor is another process."""

    async def check() -> None:
        async with supervised(bench, spec(bench)) as workers:
            worker = workers.pick("echo")
            changes: list[WorkerChange] = []
            worker.subscribe(changes.append)
            for kills in range(1, 4):
                assert await worker.wait_for_ready(60)
                with worker.borrow() as generation:
                    os.kill(generation.pid, signal.SIGKILL)
                    await generation.ending.wait()
                    assert not worker.is_ready  # before anybody who waits for the first sign can look
                await until(lambda: worker.machine.generation == kills + 1 and worker.status()["pid"])  # noqa: B023
                assert worker.status()["restarts_total"] == kills
                assert workers.metric("codex_worker_restarts_total") == kills
                assert workers.metric("codex_worker_restarts_inc_total") == kills
                assert worker.status()["last_exit"]["signal"] == signal.SIGKILL
            assert await worker.wait_for_ready(60)
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
            assert await worker.wait_for_ready(60)
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
            assert await worker.wait_for_ready(60) is False
            worker.reset()
            await until(lambda: worker.status()["restarts_total"] == 8)
            await until(lambda: worker.status()["phase"] == "failed")

    asyncio.run(check())


def test_a_program_that_is_not_there_says_so(bench: Bench) -> None:
    """spawn_failed with the program's name, counted and tried again like any failure."""

    async def check() -> None:
        missing = dataclasses.replace(spec(bench, timing=timing(restart_max=1)), argv=["/no/such/program"])
        async with supervised(bench, missing) as workers:
            worker = workers.pick("echo")
            await until(lambda: worker.status()["phase"] == "failed")
            assert WorkersPart(workers).readiness()[0] == "worker echo/0 failed 2 times in a row"
            last = worker.status()["last_exit"]
            assert last["reason"] == "spawn_failed" and "/no/such/program" in last["error"]

    asyncio.run(check())


def test_a_drain_lets_requests_finish_and_refuses_new_ones(bench: Bench) -> None:
    """Readiness is false first; whoever has borrowed goes on; then TERM, KILL, and a tree with stubborn children is
    empty."""

    async def check() -> None:
        busy = spec(bench, "mute", readiness=HANDSHAKE, timing=timing(shutdown_grace=60.0))
        deaf = [*("mute", "--deaf", "--children", 3)]
        stubborn = spec(bench, *deaf, name="stubborn", readiness=HANDSHAKE, timing=timing(shutdown_grace=0.5))
        async with supervised(bench, busy, stubborn, handshakes={"echo": shake_hands}) as workers:
            worker, other = workers.pick("echo"), workers.pick("stubborn")
            assert await worker.wait_for_ready(60) and await other.wait_for_ready(60)
            with worker.borrow() as generation:
                workers.drain()
                assert not worker.is_ready
                assert worker.status()["health"]["readiness"]["reason"] == "shutdown_initiated"
                with pytest.raises(WorkerNotReadyError) as caught, worker.borrow():
                    pass
                assert caught.value.status["shutdown_in_flight"] is True
                leaving = asyncio.ensure_future(worker.shutdown())
                await asyncio.sleep(0)
                echo = generation.conversation
                assert isinstance(echo, Echo)
                assert await echo.ask(b"still here") == b"still here"
            await leaving
            await other.shutdown()
            for gone in (worker, other):
                assert gone.status()["phase"] == "stopped"
                assert gone.status()["last_exit"]["reason"] == "cancelled"

    asyncio.run(check())


@pytest.mark.parametrize("first", ["dies while it drains", "waits for its next start"])
def test_nothing_is_started_while_the_server_drains(bench: Bench, first: str) -> None:
    """Readiness stays false: neither a death nor the end of a backoff brings a successor."""

    async def check() -> None:
        waits = first == "waits for its next start"
        pauses = timing(backoff_initial=0.3, backoff_maximum=0.3) if waits else timing()
        async with supervised(bench, spec(bench, timing=pauses)) as workers:
            worker = workers.pick("echo")
            assert await worker.wait_for_ready(60)
            if waits:
                os.kill(worker.status()["pid"], signal.SIGKILL)
                await until(lambda: worker.status()["phase"] == "backoff")
                workers.drain()
            else:
                workers.drain()
                os.kill(worker.status()["pid"], signal.SIGKILL)
            await until(lambda: worker.status()["phase"] == "stopped")
            await asyncio.sleep(0.5)
            found = worker.status()
            assert (found["phase"], found["generation"], found["ready"]) == ("stopped", 1, False)

    asyncio.run(check())


def test_an_operator_restarts_stops_and_starts(bench: Bench) -> None:
    """A restart is no failure and waits for nothing; a stopped worker rests until it is asked for."""

    async def check() -> None:
        async with supervised(bench, spec(bench, timing=timing(backoff_initial=60.0, backoff_maximum=60.0))) as workers:
            worker = workers.pick("echo")
            assert await worker.wait_for_ready(60)
            first = worker.status()["pid"]
            await worker.restart()
            await until(lambda: worker.is_ready and worker.status()["pid"] != first)
            assert (worker.status()["restarts_total"], worker.status()["consecutive_failures"]) == (1, 0)
            await worker.halt()
            assert (worker.status()["phase"], worker.status()["pid"]) == ("stopped", None)
            assert await worker.wait_for_ready(5) is False
            await worker.restart()
            assert await worker.wait_for_ready(60)

    asyncio.run(check())


def test_a_stop_that_cannot_be_carried_out_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper of a worker is suspended: a stop fails after its deadline, and is carried out once the keeper runs."""
    monkeypatch.setattr(supervisor, "END_SECONDS", 0.2)

    async def check() -> None:
        async with supervised(bench, spec(bench, timing=timing(shutdown_grace=0.1))) as workers:
            worker = workers.pick("echo")
            assert await worker.wait_for_ready(60)
            ((keeper, _),) = by_handle(bench.settings.paths.keepers_dir)
            os.kill(keeper, signal.SIGSTOP)
            try:
                async with asyncio.timeout(30):
                    with pytest.raises(WorkerTimeoutError, match=r"worker echo .* has not ended within 0.3 s"):
                        await worker.halt()
            finally:
                os.kill(keeper, signal.SIGCONT)
            await until(lambda: worker.status()["phase"] == "stopped")

    asyncio.run(check())


def test_a_shutdown_that_cannot_be_carried_out_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The keeper of a worker is suspended: the server leaves after its deadline, says so, and the session stays open
    for whoever adopts the worker."""
    monkeypatch.setattr(supervisor, "END_SECONDS", 0.2)

    async def check() -> None:
        async with supervised(bench, spec(bench, timing=timing(shutdown_grace=0.1))) as workers:
            worker = workers.pick("echo")
            assert await worker.wait_for_ready(60)
            ((keeper, _),) = by_handle(bench.settings.paths.keepers_dir)
            os.kill(keeper, signal.SIGSTOP)
            try:
                async with asyncio.timeout(30):
                    await workers.drained()
                assert worker.status()["phase"] != "stopped"
                workers._close_sessions()
                assert bench.store.sessions.get(worker.session_id).status is SessionStatus.RUNNING
            finally:
                os.kill(keeper, signal.SIGCONT)
            await until(lambda: worker.status()["phase"] == "stopped")

    asyncio.run(check())
    assert "shutdown_incomplete" in caplog.messages


def test_a_reset_ends_the_wait_of_a_stop(bench: Bench) -> None:
    """Somebody resets a worker while somebody else stops it: it starts again, and the stop does not wait for ever."""

    async def check() -> None:
        async with supervised(bench, spec(bench)) as workers:
            worker = workers.pick("echo")
            assert await worker.wait_for_ready(60)
            with worker.borrow():  # the stop waits for it
                stopping = asyncio.ensure_future(worker.halt())
                await until(lambda: worker.status()["phase"] == "draining")
                worker.reset()
            async with asyncio.timeout(30):
                await stopping
            assert await worker.wait_for_ready(60)

    asyncio.run(check())


def test_recycled_by_age_and_by_what_it_writes(bench: Bench) -> None:
    """An old worker is replaced without counting as a failure; one that floods stderr at once counts as one."""

    async def check() -> None:
        old = spec(bench, name="old", recycling=Recycling(age=0.2))
        loud = spec(bench, "stdout", "--chatter", 1 << 20, name="loud", recycling=Recycling(log_bytes=64 << 10))
        async with supervised(bench, old, loud) as workers:
            ageing, chattering = workers.pick("old"), workers.pick("loud")
            await until(lambda: ageing.status()["restarts_total"] >= 2)
            assert ageing.status()["consecutive_failures"] == 0
            await until(lambda: chattering.status()["consecutive_failures"] >= 1)
            assert "to stderr" in chattering.status()["last_exit"]["error"]
            assert chattering.status()["last_log_sample"]["stream"] in ("stdout", "stderr")

    asyncio.run(check())


def test_recycled_by_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that uses more than it should is replaced after what it has under way, without counting as a failure."""
    monkeypatch.setattr(monitoring, "_MEMORY_SECONDS", 0.05)

    async def check() -> None:
        fat = spec(bench, "stdout", "--eat", 96 << 20, name="fat", recycling=Recycling(memory_bytes=64 << 20))
        slim = spec(bench, name="slim", recycling=Recycling(memory_bytes=64 << 20))
        async with supervised(bench, fat, slim) as workers:
            eating, waiting = workers.pick("fat"), workers.pick("slim")
            assert await waiting.wait_for_ready(60)
            await until(lambda: eating.status()["restarts_total"] >= 2)
            assert eating.status()["consecutive_failures"] == 0
            assert "bytes of memory, more than 67108864" in eating.status()["last_exit"]["error"]
            assert waiting.status()["restarts_total"] == 0

    asyncio.run(check())


def test_ceilings_of_memory_and_cpu(memory_bench: Bench) -> None:
    """Beyond its memory a worker is killed and has failed, as out_of_memory; beyond its share of CPU it is slowed."""
    bench = memory_bench

    def counters(worker: ServiceSupervisor) -> dict[str, int]:
        mine = [
            command
            for session in bench.store.sessions.page()
            if session.metadata.get("worker") == worker.name
            for command in bench.store.commands.in_session(session.id)
        ]
        assert mine[0].exit is not None
        found: dict[str, int] = mine[0].exit.evidence["counters"]
        return found

    async def check() -> None:
        hungry = spec(bench, "stdout", "--eat", 256 << 20, name="hungry", limits=Limits(memory_bytes=48 << 20))
        busy = spec(bench, "stdout", "--spin", name="busy", limits=Limits(cpus=0.05))
        async with supervised(bench, hungry, busy) as workers:
            eating, spinning = workers.pick("hungry"), workers.pick("busy")
            await until(lambda: eating.status()["consecutive_failures"] >= 1)
            assert eating.status()["last_exit"]["reason"] == "out_of_memory"
            assert await spinning.wait_for_ready(60)
            pid = spinning.status()["pid"]
            # Not a time: on a busy machine it may get less than its share, and nothing holds it back.
            await until(lambda: throttled(pid), what="a period in which it used up its share")
            await spinning.restart()
            await until(lambda: spinning.is_ready and spinning.status()["restarts_total"] == 1)
            assert counters(spinning)["throttled"] >= 1
            assert counters(eating)["oom_kill"] >= 1

    asyncio.run(check())


def test_the_environment_is_an_allow_list(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker sees what it inherits by name and what is set for it; the front's secrets are refused outright."""
    monkeypatch.setenv("PROXY_API_KEY", "hidden")
    monkeypatch.setenv("SOME_TOKEN", "hidden")
    monkeypatch.setenv("WANTED", "seen")

    async def check() -> None:
        showing = spec(bench, env={"MINE": "1"}, inherit=["WANTED"])
        async with supervised(bench, showing) as workers:
            worker = workers.pick("echo")
            assert await worker.wait_for_ready(60)
            seen = environment_of(worker.status()["pid"])
            assert {b"WANTED=seen", b"MINE=1", b"CODEX_WORKER_SUPERVISED=true"} <= set(seen)
            assert not [item for item in seen if b"hidden" in item]

    asyncio.run(check())
    for wrong in ({"env": {"PROXY_API_KEY": "x"}}, {"inherit": ["PROXY_METRICS_TOKEN"]}):
        with pytest.raises(ConfigurationError, match="the server's own secret"):
            spec(bench, **wrong)


def test_what_is_logged_names_lengths_and_no_words(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Launch, spawn, stream, ready and exit are told with the fields that operators know; output is never quoted."""

    async def check() -> None:
        async with supervised(bench, spec(bench, "stdout", "--chatter", 4096)) as workers:
            worker = workers.pick("echo")
            assert await worker.wait_for_ready(60)
            await until(lambda: "stderr" in {record.__dict__.get("stream") for record in caplog.records})
            os.kill(worker.status()["pid"], signal.SIGKILL)
            await until(lambda: worker.status()["restarts_total"] == 1)
            assert await worker.wait_for_ready(60)

    with caplog.at_level("INFO", logger="debug_server.worker"):
        asyncio.run(check())
    found = {record.getMessage() for record in caplog.records}
    assert {"worker_launch", "worker_spawned", "worker_stream", "worker_ready", "worker_exit"} <= found
    assert {"worker_restart_scheduled", "shutdown_initiated", "worker_exit_during_shutdown"} <= found
    streams = [record for record in caplog.records if record.getMessage() == "worker_stream"]
    assert all(record.__dict__["stream_len"] > 0 and record.__dict__["component"] == "worker" for record in streams)
    assert not [record for record in caplog.records if "serving requests" in str(record.__dict__)]
    kinds = [event.kind for event in bench.store.events.read() if event.kind.startswith("worker.")]
    assert kinds == [
        "worker.spawned", "worker.ready", "worker.exited",
        "worker.spawned", "worker.ready", "worker.exited", "worker.stopped",
    ]  # fmt: skip
