"""Several instances of one worker: each has its number, and what could never be ready is refused before it starts."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from debug_server.errors import ConfigurationError
from debug_server.workers.spec import ExecReadiness, HttpReadiness, WorkerSpec
from tests.running import ROOT, Bench, own_ports
from tests.workers.supervising import spec, supervised, timing
from tests.workers.test_supervision import environment_of


def _free_decade() -> int:
    """The first digits of two ports, ending in 0 and 1, that nobody listens on."""
    for _ in range(100):
        digits = random.choice(own_ports()) // 10
        try:
            for port in (digits * 10, digits * 10 + 1):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return digits
    raise AssertionError("no two free ports")


def test_instances_share_a_declaration_and_no_port(bench: Bench) -> None:
    """The documented worker with two instances: both become ready, each on its port, and each knows its number."""

    async def check() -> None:
        digits = _free_decade()
        serving = WorkerSpec(
            name="search",
            argv=[sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", f"{digits}{{instance}}"],
            readiness=HttpReadiness(url=f"http://127.0.0.1:{digits}{{instance}}/", interval=0.05),
            cwd=bench.workspace,
            instances=2,
            timing=timing(),
        )
        async with supervised(bench, serving) as workers:
            for number, worker in enumerate(workers.named("search")):
                assert await worker.wait_for_ready(60)
                status = worker.status()
                assert status["restarts_total"] == 0
                assert b"DEBUG_SERVER_WORKER_INSTANCE=%d" % number in environment_of(status["pid"])

    asyncio.run(check())


def test_only_the_exact_placeholder_is_replaced(bench: Bench) -> None:
    """Other braces are the program's own, in argv and in a probe; one instance's declaration differs from another's."""
    probe = ExecReadiness(argv=["awk", "{print}", "x{instance}"])
    found = spec(bench, "{instance}-{instance}", "${instances}", "{}", "{{instance}}", instances=4, readiness=probe)
    third = found.for_instance(3)
    assert list(third.argv[-4:]) == ["3-3", "${instances}", "{}", "{3}"]
    assert isinstance(third.readiness, ExecReadiness)
    assert third.readiness.argv == ["awk", "{print}", "x3"]
    assert third.fingerprint() != found.for_instance(2).fingerprint()


def test_one_address_for_several_instances_is_refused(bench: Bench) -> None:
    """It could not say which of them is ready; one instance needs no number."""
    address = HttpReadiness(url="http://127.0.0.1:9001/")
    with pytest.raises(ConfigurationError, match=r"one address for 2 instances: write \{instance\}"):
        spec(bench, readiness=address, instances=2)
    assert spec(bench, readiness=address).instances == 1


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [({"PROXY_USE_APP_SERVER": "true"}, "use one of codex"), ({}, "when the gateway is enabled")],
)
def test_a_protocol_that_nobody_speaks_is_refused_at_the_start(
    tmp_path: Path, environ: dict[str, str], sentence: str
) -> None:
    """The server ends with status 2 and one line that names the worker, the protocol and the known ones."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "workers.toml").write_text(
        "[workers.odd]\nargv = ['/bin/cat']\nreadiness = 'handshake'\nprotocol = 'smoke'\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "debug_server", "serve", "--port", "0", "--no-grpc"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "worker odd: unknown protocol 'smoke': " in done.stderr
    assert sentence in done.stderr and "Traceback" not in done.stderr
