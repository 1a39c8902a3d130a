"""The server as a process: start, the first token, killed, drained, refused."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import socket as sockets
import ssl
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from debug_server.app.server import ServeOptions, serve
from debug_server.errors import ConfigurationError
from tests.certificates import self_signed
from tests.running import eventually, lasting_port
from tests.servers import serving
from tests.surfaces.http.serving import SECONDS, Process, answered, open_local, refused
from tests.surfaces.http.test_disconnects import TRANSPORTS, WRITER
from tests.worktrees.places import small_remote

Processes = Callable[..., Process]
SIZE = 6 << 20


def open_client(process: Process, secret: str) -> httpx.Client:
    return httpx.Client(base_url=process.url, headers={"Authorization": f"Bearer {secret}"}, timeout=SECONDS)


@pytest.fixture
def secret(base: Path) -> str:
    """An admin's token, made before the server starts."""
    with open_local(base) as local:
        local.store.repositories.create("repo", str(small_remote(base / "remote").path))
        return local.store.tokens.create("tester", ["admin"])[1]


@pytest.fixture
def port() -> int:
    """One that stays the same across restarts."""
    return lasting_port()


def test_followers_leave_connections_for_requests(tmp_path: Path) -> None:
    """However few connections a server has, followers take three quarters of them, so that others can send requests."""
    variables = {"DEBUG_SERVER_PATHS_ARTIFACTS": str(tmp_path / "data"), "DEBUG_SERVER_SERVER_MAX_CONNECTIONS": "12"}
    with serving(tmp_path / "server", variables=variables) as server, contextlib.ExitStack() as stack:
        head = f"GET /events/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        followers = [
            stack.enter_context(sockets.create_connection(("127.0.0.1", server.port), SECONDS)) for _ in range(12)
        ]
        for follower in followers:
            follower.sendall(head.encode())
        statuses = [follower.makefile("rb").readline().split()[1] for follower in followers]
        assert sorted(statuses) == [b"200"] * 9 + [b"429"] * 3
        headers = {"Authorization": f"Bearer {server.token}"}
        assert httpx.get(f"{server.base_url}/whoami", headers=headers, timeout=SECONDS).status_code == 200


def start_writer(client: httpx.Client, size: int) -> tuple[int, int]:
    run = {"repository": "repo", "commit": "HEAD", "argv": [sys.executable, "-c", WRITER, str(size)]}
    reply = answered(client.post("/runs", json=run), 201)
    return reply["session"]["id"], reply["command"]["id"]


@pytest.mark.usefixtures("nothing_left")
def test_a_server_that_is_killed_again_and_again(processes: Processes, secret: str, port: int) -> None:
    """OpenStreams of each transport go on by offset over kill -9 and restart, and have every byte once."""
    process = processes(port=port).started()
    with open_client(process, secret) as client:
        _, command = start_writer(client, SIZE)
    got = {name: bytearray() for name in TRANSPORTS}
    offsets = dict.fromkeys(TRANSPORTS, 0)
    done = threading.Event()

    def follow(name: str) -> None:
        headers = {"Authorization": f"Bearer {secret}"}
        while offsets[name] < SIZE and not done.is_set():
            try:
                for offset, data in TRANSPORTS[name](f"{process.url}/commands/{command}", offsets[name], headers):
                    got[name] += data
                    offsets[name] = offset
            except Exception:  # noqa: BLE001 - whatever the death of a server does to a client
                time.sleep(0.02)

    threads = [threading.Thread(target=follow, args=(name,)) for name in TRANSPORTS]
    for thread in threads:
        thread.start()
    for part in (1, 2, 3):
        wanted = part * SIZE // 5
        while min(offsets.values()) < wanted:
            assert any(thread.is_alive() for thread in threads)
            time.sleep(0.01)
        process.kill()
        process = processes(port=port).started()
    for thread in threads:
        thread.join(SECONDS)
    done.set()
    with open_client(process, secret) as client:
        assert answered(client.get(f"/commands/{command}/wait?timeout=100"), 200)["exit_reason"] == "exited"
        whole = client.get(f"/commands/{command}/log").content
    assert len(whole) == SIZE and all(bytes(found) == whole for found in got.values())
    process.terminate()
    assert process.output()[0] == 0


@pytest.mark.usefixtures("nothing_left")
def test_drain(processes: Processes, secret: str, port: int, base: Path) -> None:
    """After SIGTERM: not ready, POSTs get a retryable 503, followers are cut off, the server ends, commands go on."""
    # A drain that is over before everything was asked shows nothing: then the next one takes longer.
    assert any(_drained(processes, secret, port, base / f"go-{seconds}", seconds) for seconds in (4, 16, 64))


def _drained(processes: Processes, secret: str, port: int, go: Path, seconds: int) -> bool:
    """Ask everything of a server that drains for so long; False when it had left before everything was asked."""
    options = {"drain_seconds": seconds, "grace_seconds": seconds + 20}
    process = processes(port=port, options=json.dumps(options)).started()
    client = open_client(process, secret)
    # It ends with its folder as well: nothing may outlive a test that is killed.
    script = f"echo one; while [ -d {go.parent} ] && [ ! -e {go} ]; do sleep 0.05; done; echo two"
    run = {"repository": "repo", "commit": "HEAD", "argv": ["sh", "-c", script]}
    reply = answered(client.post("/runs", json=run), 201)
    command = reply["command"]["id"]
    eventually(lambda: client.get(f"/commands/{command}").json()["status"] == "running")
    with open_client(process, secret).stream("GET", f"/commands/{command}/log", params={"follow": True}) as follower:
        process.terminate()
        began = time.monotonic()
        try:
            eventually(lambda: client.get("/readyz").status_code == 503, what="not being ready")
            late = client.post("/runs", json=run)
            meanwhile = answered(client.get(f"/commands/{command}"), 200)
            in_time = True
        except httpx.TransportError:
            assert time.monotonic() - began >= seconds
            in_time = False
        else:
            assert refused(late, 503, "draining")["retryable"] is True and int(late.headers["retry-after"]) >= 1
            assert meanwhile["status"] == "running"
        with pytest.raises(httpx.HTTPError):
            list(follower.iter_raw())
    status, said = process.output()
    assert status == 0, said
    process = processes(port=port).started()
    with open_client(process, secret) as client:
        assert answered(client.get(f"/commands/{command}"), 200)["status"] == "running"
        go.touch()
        assert answered(client.get(f"/commands/{command}/wait?timeout=100"), 200)["exit_reason"] == "exited"
        assert client.get(f"/commands/{command}/log").text == "one\ntwo\n"
        eventually(lambda: client.get(f"/sessions/{reply['session']['id']}").json()["status"] == "completed")
    process.terminate()
    assert process.output()[0] == 0
    return in_time


@pytest.mark.usefixtures("nothing_left")
def test_the_first_token_is_shown_once(processes: Processes) -> None:
    """A new store's first start prints an admin token that works; the second start prints none."""
    process = processes().started()
    assert process.said[0].startswith("admin token, shown only once: ")
    with open_client(process, process.said[0].split()[-1]) as client:
        assert answered(client.get("/whoami"), 200)["scopes"] == ["admin"]
        # The same server and the same token for the Model Context Protocol.
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"Accept": "application/json, text/event-stream"}
        assert '"tools":[' in client.post("/mcp", json=ask, headers=accept).text
    process.terminate()
    assert process.output()[0] == 0
    second = processes().started()
    assert len(second.said) == 1
    second.terminate()
    assert second.output()[0] == 0


def test_a_second_server_is_refused(processes: Processes) -> None:
    """The store's server is named by its pid; after a kill -9 the next one is let in."""
    first = processes().started()
    status, said = processes().output()
    assert status == 1 and said.startswith(f"engine_busy: a server (pid {first.pid}) already serves")
    first.kill()
    processes().started().terminate()


def test_options_that_cannot_be_served_are_refused(base: Path) -> None:
    """Without a token or TLS only loopback is served; a taken port and bad TLS files are named, and
    no token is made for a server that did not start."""
    (base / "no.pem").write_text("nothing")
    said: list[str] = []
    with sockets.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        for options, message in (
            ({"host": "0.0.0.0"}, "host '0.0.0.0' can be reached from other machines and there is no token yet"),
            ({"host": "::"}, "host '::' can be reached"),
            ({"tls_cert": base / "no.pem"}, "both --tls-cert and --tls-key"),
            ({"tls_cert": base / "none", "tls_key": base / "none"}, "none does not exist"),
            ({"tls_cert": base / "no.pem", "tls_key": base / "no.pem"}, "no.pem cannot be used"),
            (
                {"port": number},
                f"cannot listen on 127.0.0.1 port {number} (Address already in use): choose another --host or --port",
            ),
            (
                {"grpc_port": number},
                f"cannot listen on 127.0.0.1 gRPC port {number} (Address already in use): "
                "choose another --grpc-port, or give --no-grpc",
            ),
            ({"port": 65536}, "cannot listen on 127.0.0.1 port 65536 (a port is a number from 0 to 65535)"),
        ):
            fields: dict[str, Any] = {"port": 0, "grpc_port": None, **options}
            with open_local(base) as local, pytest.raises(ConfigurationError, match=re.escape(message)):
                serve(local, ServeOptions(**fields), announce=said.append)
    assert said == []
    with open_local(base) as local:
        assert local.store.tokens.page() == []
    assert gc.isenabled()


def test_tls(processes: Processes, base: Path, secret: str) -> None:
    """With a certificate the server speaks TLS, on any address."""
    made = self_signed(base)
    process = processes(options=f'{{"tls_cert": "{made.cert}", "tls_key": "{made.key}", "host": "0.0.0.0"}}').started()
    assert process.url.startswith("https://")
    address = f"https://127.0.0.1:{process.port}"
    trusted = ssl.create_default_context(cafile=str(made.cert))
    assert httpx.get(f"{address}/health", verify=trusted, timeout=SECONDS).json() == {"status": "ok"}
    process.terminate()
    assert process.output()[0] == 0


def test_the_application_for_other_servers(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``debug_server.api.main`` has ``create_app``; importing it opens nothing; its lifespan runs the engine."""
    monkeypatch.chdir(base)
    from debug_server.api import main

    assert not (base / ".artifacts").exists()
    with open_local(base) as local:
        app = main.create_app(local)
        assert "/sessions" in app.openapi()["paths"]
        from starlette.testclient import TestClient

        headers = {"Authorization": f"Bearer {local.store.tokens.create('t', ['admin'])[1]}"}
        with TestClient(app, headers=headers) as client:
            assert client.get("/readyz").status_code == 200
            assert client.get("/whoami").json()["name"] == "t"
    with pytest.raises(AttributeError, match="application"):
        main.application  # noqa: B018
