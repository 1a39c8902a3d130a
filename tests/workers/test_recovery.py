"""After a server's kill -9: its worker is adopted or removed, never doubled, never leaked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from debug_server.runner.keeper.linux import stat_fields
from tests.running import ROOT, Bench, eventually
from tests.workers.supervising import shake_hands, spec, supervised, timing
from tests.workers.test_supervision import HANDSHAKE

pytestmark = pytest.mark.usefixtures("nothing_left")


def killed_host(root: Path, kind: str, orphan_seconds: float) -> int:
    """The pid of a worker whose server was just killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.workers.host", str(root), kind, str(orphan_seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        host.kill()
    return pid


def alive(pid: int) -> bool:
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"


def test_a_worker_without_a_conversation_is_adopted(tmp_path: Path) -> None:
    """The same process goes on, ready at once, and is ended by its new server; its row has its one end."""
    pid = killed_host(tmp_path / "host", "stdout", 60)
    bench = Bench(tmp_path / "host")

    async def check() -> None:
        async with supervised(bench, spec(bench, "stdout", timing=timing(orphan_timeout=60))) as workers:
            worker = workers.pick("echo")
            assert await worker.wait_for_ready(60)
            assert (worker.status()["pid"], worker.status()["restarts_total"]) == (pid, 0)

    asyncio.run(check())
    assert not alive(pid)
    assert not bench.store.queue.claimed()
    bench.close()


def test_a_worker_in_a_conversation_is_removed_first(tmp_path: Path) -> None:
    """Its other side is dead: it is gone before its successor is there."""
    pid = killed_host(tmp_path / "host", "mute", 60)
    bench = Bench(tmp_path / "host")

    async def check() -> None:
        there = spec(bench, "mute", readiness=HANDSHAKE, timing=timing(orphan_timeout=60))
        async with supervised(bench, there, handshakes={"echo": shake_hands}) as workers:
            assert not alive(pid)
            assert await workers.pick("echo").wait_for_ready(60)

    asyncio.run(check())
    assert not bench.store.queue.claimed()
    bench.close()


def test_a_worker_that_is_declared_otherwise_or_no_more_is_removed(tmp_path: Path) -> None:
    """Another command line is another worker; no declaration is none."""
    pid = killed_host(tmp_path / "host", "stdout", 60)
    bench = Bench(tmp_path / "host")

    async def check() -> None:
        async with supervised(bench) as workers:
            assert workers.statuses() == []

    asyncio.run(check())
    assert not alive(pid)
    assert not bench.store.queue.claimed()
    bench.close()


def test_a_worker_whose_server_never_comes_back_ends_by_itself(tmp_path: Path) -> None:
    """Its keeper's patience is all that is needed."""
    pid = killed_host(tmp_path / "host", "stdout", 0.3)
    eventually(lambda: not alive(pid), what="the end of an orphan")
    bench = Bench(tmp_path / "host")
    asyncio.run(_settle(bench))
    assert not bench.store.queue.claimed()
    bench.close()


async def _settle(bench: Bench) -> None:
    async with supervised(bench):
        pass
