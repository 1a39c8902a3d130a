"""A token goes to no port of this machine that another user has taken."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.client.listener import TrustedServer, listening_users
from debug_server.errors import AccessError, DebugServerError
from debug_server.surfaces.cli.connection import find_connection, grpc_token, save_connection
from debug_server.surfaces.mcp.bridge import Bridge

NOBODY = 65534
LISTEN = """
import os, socket, sys
uid, host = int(sys.argv[1]), sys.argv[2]
os.setuid(uid)
family = socket.AF_INET6 if ":" in host else socket.AF_INET
with socket.create_server((host, int(sys.argv[3])), family=family) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        print(connection.recv(65536), flush=True)
        connection.sendall(b"HTTP/1.1 401 Unauthorized\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{}")
        connection.close()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


class Taken:
    """A port that another user listens on, and what came there."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self.port = int(process.stdout.readline())

    def heard(self) -> str:
        """Everything, at the end."""
        assert self._process.stdout is not None
        self._process.kill()
        return self._process.stdout.read()


@contextlib.contextmanager
def taken(host: str, port: int = 0, uid: int = NOBODY) -> Iterator[Taken]:
    """Another user's listener."""
    argv = [sys.executable, "-I", "-S", "-c", LISTEN, str(uid), host, str(port)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        yield Taken(process)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("host", "asked", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::", "::1", True),
        ("127.0.0.1", "::1", False),
        ("127.0.0.1", "127.0.0.2", False),
    ],
)
def test_who_listens(host: str, asked: str, expected: bool) -> None:
    """The kernel names the user of a listener at the address itself, or at all addresses."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
        assert listening_users(ip_address(asked), port) == ({os.geteuid()} if expected else set())
        TrustedServer().require(f"http://{f'[{asked}]' if ':' in asked else asked}:{port}/")


@needs_root
def test_another_user_s_listener_gets_no_token(tmp_path: Path) -> None:
    """Neither client, bridge nor gRPC sends it one; the refusal says what to do, and doing it sends the token."""
    with taken("127.0.0.1") as thief:
        url = f"http://127.0.0.1:{thief.port}"
        with DebugServerClient(base_url=url, token="secret") as client, pytest.raises(AccessError) as refused:
            client.who_am_i()
        assert f"configure --base-url {url} --server-user {NOBODY}" in str(refused.value)

        async def ask() -> None:
            async with AsyncDebugServerClient(base_url=url, token="secret") as client:
                with pytest.raises(AccessError):
                    await client.who_am_i()
            assert (await Bridge(url, "secret", verify_tls=True).call_tool("x", {})).is_error

        asyncio.run(ask())
        home = {"DEBUG_SERVER_HOME": str(tmp_path)}
        save_connection({"base_url": url, "token": "secret"}, home)
        with pytest.raises(AccessError, match="the token was not sent"):
            grpc_token(f"127.0.0.1:{thief.port}", {}, home, own_port=thief.port)
        assert "secret" not in thief.heard()
    with taken("127.0.0.1", thief.port) as server:
        save_connection({"server_uid": NOBODY}, home)
        assert grpc_token(f"127.0.0.1:{thief.port}", {}, home, own_port=thief.port) == "secret"
        found = find_connection({}, home)
        assert (found.token, found.server_uid) == ("secret", NOBODY)
        with (
            DebugServerClient(base_url=url, token="secret", server_uid=found.server_uid) as client,
            pytest.raises(DebugServerError),
        ):
            client.who_am_i()
        assert "Bearer secret" in server.heard()


@needs_root
def test_a_name_is_all_of_its_addresses(tmp_path: Path) -> None:
    """With our server at 127.0.0.1 and another user's at ::1, localhost is refused and 127.0.0.1 is not."""
    if not any(place[0] == "::1" for *_, place in socket.getaddrinfo("localhost", None)):
        pytest.skip("localhost has no IPv6 address here")
    with socket.create_server(("127.0.0.1", 0)) as own, taken("::1", own.getsockname()[1]) as thief:
        TrustedServer().require(f"http://127.0.0.1:{thief.port}")
        with pytest.raises(AccessError):
            TrustedServer().require(f"http://localhost:{thief.port}")
        home = {"DEBUG_SERVER_HOME": str(tmp_path)}
        save_connection({"base_url": f"http://127.0.0.1:{thief.port}", "token": "secret"}, home)
        assert grpc_token(f"127.0.0.1:{thief.port}", {}, home, own_port=thief.port) == "secret"
        with pytest.raises(AccessError):
            grpc_token(f"localhost:{thief.port}", {}, home, own_port=thief.port)
