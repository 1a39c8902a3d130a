"""Health is the same through every surface; an unknown certificate is explained by client and command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from grpc import aio

from debug_server.client import DebugServerClient
from debug_server.errors import ConfigurationError
from tests.certificates import self_signed
from tests.servers import ServerProcess, serving
from tests.surfaces.cli.conftest import Terminal
from tests.surfaces.grpc.serving import Client
from tests.surfaces.http.serving import Process
from tests.surfaces.mcp.peers import Http, call, http_client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server with all of its surfaces."""
    with serving(tmp_path_factory.mktemp("server"), grpc=True) as running:
        yield running


async def _asked(server: ServerProcess) -> list[dict[str, str]]:
    async with aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        told = await Client(channel, None).ask("Health")
    async with http_client(Http(port=server.port, token=server.token)) as client:
        found = await call(client, "health")
    return [dict(told.checks), found["checks"]]


def test_health_is_the_same_everywhere(server: ServerProcess) -> None:
    """REST, gRPC, MCP and the client name the same checks, the server's parts among them."""
    checks = httpx.get(f"{server.base_url}/readyz", timeout=100).json()["checks"]
    assert {"store", "disk", "keepers", "tasks", "workers"} <= checks.keys()
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        assert client.health().checks == checks
    assert asyncio.run(_asked(server)) == [checks, checks]


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    """It is told at once, with the ways out, and is no reason to try again later; each way out works."""
    made = self_signed(tmp_path)
    process = Process(tmp_path / "server", options=f'{{"tls_cert": "{made.cert}", "tls_key": "{made.key}"}}').started()
    try:
        with (
            DebugServerClient(base_url=process.url, token="t") as client,
            pytest.raises(ConfigurationError, match=r"SSL_CERT_FILE.*--insecure"),
        ):
            client.health()
        terminal = Terminal(folder=tmp_path)
        flags = ("--base-url", process.url, "--token", "t")
        refused = terminal(*flags, "status")
        assert (refused.status, refused.out) == (2, "") and "--insecure" in refused.err
        assert terminal(*flags, "--insecure", "status").status == 0
        trusting = Terminal(folder=tmp_path, variables={"SSL_CERT_FILE": str(made.cert)})
        assert trusting(*flags, "status").status == 0
    finally:
        process.close()
