"""Nothing goes to a port of this machine that another user has taken, whenever that happens."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import httpx
import pytest

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.client.connection import load_grpc_settings, load_server_settings, save_server_settings
from debug_server.client.relay import Relay
from debug_server.errors import AccessError, DebugServerError
from debug_server.sockets.trust import HttpTrust, TrustedServerUser
from debug_server.surfaces.mcp.bridge import Bridge
from debug_server.surfaces.mcp.toolsets import DEFAULT
from tests.other_users import NOBODY, Taken, taken
from tests.running import lasting_port
from tests.surfaces.cli.conftest import Terminal

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

Attempt = Callable[[str, str | None], None]
SECONDS = 100


def _waiting(url: str, token: str | None) -> None:
    with DebugServerClient(base_url=url, token=token) as client:
        client.who_am_i()


def _awaited(url: str, token: str | None) -> None:
    async def ask() -> None:
        async with AsyncDebugServerClient(base_url=url, token=token) as client:
            await client.who_am_i()

    asyncio.run(ask())


def _following(url: str, token: str | None) -> None:
    with DebugServerClient(base_url=url, token=token) as client:
        next(client.follow_events())


def _bridged(url: str, token: str | None) -> None:
    done = asyncio.run(
        Bridge(url, token, verify_tls=True, server_uid=None, toolsets=DEFAULT).call_tool("x", {"prompt": "secret"})
    )
    assert done.is_error
    raise AccessError(str(done.content))


def _over_grpc(url: str, token: str | None) -> None:
    target = url.removeprefix("http://")
    with (
        Relay(target, TrustedServerUser()) as relay,
        grpc.insecure_channel(relay.address, options=relay.options) as channel,
    ):
        send = channel.unary_unary("/secret.Secret/Secret")
        with pytest.raises(grpc.RpcError):
            send(b"secret", timeout=SECONDS, metadata=[("authorization", f"Bearer {token}")] if token else [])
    assert relay.failure is not None
    raise relay.failure


ATTEMPTS = [_waiting, _awaited, _following, _bridged, _over_grpc]


@needs_root
@pytest.mark.parametrize("token", ["secret", None])
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_another_user_s_listener_gets_nothing(attempt: Attempt, token: str | None) -> None:
    """Every client refuses, with a token and without, and says what to do."""
    with taken("127.0.0.1") as thief:
        url = f"http://127.0.0.1:{thief.port}"
        with pytest.raises(AccessError, match=f"127.0.0.1:{thief.port} --server-user {NOBODY}"):
            attempt(url, token)
        assert not thief.heard()


@needs_root
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_port_that_is_taken_just_before_the_connection(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at first, and another user does at the moment of connecting: nothing is sent."""
    port = lasting_port()
    connect, await_connection = socket.create_connection, asyncio.BaseEventLoop.create_connection
    with contextlib.ExitStack() as life:
        thieves: list[Taken] = []

        def take() -> None:
            if not thieves:
                thieves.append(life.enter_context(taken("127.0.0.1", port)))

        def late(*arguments: Any, **more: Any) -> socket.socket:
            take()
            return connect(*arguments, **more)

        async def awaited_late(*arguments: Any, **more: Any) -> Any:
            take()
            return await await_connection(*arguments, **more)

        monkeypatch.setattr(socket, "create_connection", late)
        monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", awaited_late)
        with pytest.raises(AccessError):
            attempt(f"http://127.0.0.1:{port}", "secret")
        assert not thieves[0].heard()


@needs_root
@pytest.mark.parametrize("attempt", [_waiting, _awaited, _following])
def test_a_port_that_is_taken_between_two_attempts(attempt: Attempt) -> None:
    """Our server answers "later" and goes; another user takes its port, and the repetition sends nothing."""
    with contextlib.ExitStack() as life:
        thieves: list[Taken] = []
        port = lasting_port()
        listener = socket.create_server(("127.0.0.1", port))

        def serve() -> None:
            with listener:
                connection, _ = listener.accept()
            with connection:
                assert b"secret" in connection.recv(65536)
                thieves.append(life.enter_context(taken("127.0.0.1", port)))
                connection.sendall(b"HTTP/1.1 503 x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

        server = threading.Thread(target=serve)
        server.start()
        try:
            with pytest.raises(AccessError):
                attempt(f"http://127.0.0.1:{port}", "secret")
        finally:
            server.join()
        assert not thieves[0].heard()


@needs_root
@pytest.mark.parametrize(
    ("listens", "host"),
    [
        ("127.0.0.1", "0.0.0.0"),
        ("127.0.0.1", "0"),
        ("127.0.0.1", "[::ffff:0.0.0.0]"),
        ("127.0.0.1", "[::ffff:127.0.0.1]"),
        ("0.0.0.0", "127.0.0.9"),
        ("::1", "[::]"),
    ],
)
@pytest.mark.parametrize("attempt", [_waiting, _awaited, _over_grpc])
def test_every_way_to_write_this_machine(attempt: Attempt, listens: str, host: str) -> None:
    """What counts is where the connection went, not how the address is written."""
    with taken(listens) as thief:
        with pytest.raises(AccessError):
            attempt(f"http://{host}:{thief.port}", "secret")
        assert not thief.heard()


@needs_root
def test_an_address_of_this_machine_s_network() -> None:
    """One that is no loopback address is judged likewise."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: asks for the route
        except OSError:
            pytest.skip("this machine has no network")
        own = probe.getsockname()[0]
    with taken("0.0.0.0") as thief:
        with pytest.raises(AccessError):
            _waiting(f"http://{own}:{thief.port}", "secret")
        assert not thief.heard()


@needs_root
def test_the_user_that_is_named_is_trusted(tmp_path: Path) -> None:
    """After ``configure --server-user`` the token is sent, over HTTP and gRPC."""
    home = {"DEBUG_SERVER_HOME": str(tmp_path)}
    with taken("127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.port}"
        save_server_settings({"base_url": url, "token": "secret", "server_uid": NOBODY}, home)
        over_grpc = load_grpc_settings(f"127.0.0.1:{server.port}", {}, home, own_port=server.port)
        assert (over_grpc.token, over_grpc.trusted) == ("secret", TrustedServerUser(uid=NOBODY))
        found = load_server_settings({}, home)
        with (
            DebugServerClient(base_url=url, token=found.token, server_uid=found.server_uid) as client,
            pytest.raises(DebugServerError),
        ):
            client.who_am_i()
        assert "Bearer secret" in server.heard()


@needs_root
@pytest.mark.parametrize(
    "words",
    [
        ("tasks", "submit", "t1", "SECRET PROMPT"),
        ("tasks", "logs", "t1"),
        ("emit", "t1", "created", "x", "--payload", '{"a": "SECRET"}', "--target"),
        ("events", "--repo", "*", "--target"),
        ("probe", "changelog", "--target"),
        ("probe", "status"),
    ],
)
def test_command_lines_without_a_token(words: tuple[str, ...], tmp_path: Path) -> None:
    """Prompts and events do not go there either."""
    with taken("127.0.0.1") as thief:
        place = f"127.0.0.1:{thief.port}"
        variables = {"DEBUG_SERVER_URL": f"http://{place}", "PROBE_GRPC_PORT": str(thief.port)}
        terminal = Terminal(folder=tmp_path, variables=variables)
        with terminal.start(*words, *([place] if words[-1] == "--target" else [])) as process:
            said = process.communicate(timeout=SECONDS)
        assert process.returncode != 0
        assert f"--server-user {NOBODY}".encode() in said[1], said
        assert not thief.heard()


@needs_root
@pytest.mark.parametrize("token", ["SECRET", None])
def test_configure_asks_no_other_user(token: str | None, tmp_path: Path) -> None:
    """Before anything is saved, and says how to name that user."""
    with taken("127.0.0.1") as thief:
        (tmp_path / "token").write_text(token or "")
        words = ("configure", "--base-url", f"http://127.0.0.1:{thief.port}")
        refused = Terminal(folder=tmp_path)(*words, *(("--token-file", "token") if token else ()))
        assert refused.status == 2 and f"--server-user {NOBODY}" in refused.err, refused
        assert not thief.heard() and not (tmp_path / "home").exists()


@needs_root
def test_the_call_of_a_runner() -> None:
    """An event goes to another user's target only if that user is named."""
    argv = [sys.executable, "-m", "debug_server.dispatch.call"]
    for variables, is_sent in (({}, False), ({"DEBUG_SERVER_UID": str(NOBODY)}, True)):
        with taken("127.0.0.1") as thief:
            target = f"127.0.0.1:{thief.port}"
            event = {"target": target, "rpc": "ProbeSync.SyncRepo", "timeout": SECONDS, "payload": "secret"}
            done = subprocess.run(
                argv,
                input=json.dumps(event),
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                check=False,
                timeout=2 * SECONDS,
            )
            assert done.returncode != 0
            assert (f"DEBUG_SERVER_UID={NOBODY}" in done.stderr) != is_sent
            assert ("PRI * HTTP/2" in thief.heard()) == is_sent


@needs_root
def test_a_name_is_where_its_connection_goes() -> None:
    """With our server at 127.0.0.1 and another user's at ::1, that one gets nothing by the name localhost."""
    if not any(place[0] == "::1" for *_, place in socket.getaddrinfo("localhost", None)):
        pytest.skip("localhost has no IPv6 address here")
    port = lasting_port()
    with socket.create_server(("127.0.0.1", port)), taken("::1", port) as thief:
        with socket.create_connection(("127.0.0.1", thief.port)) as ours:
            TrustedServerUser().require(ours, "here")
        with socket.create_connection(("::1", thief.port)) as theirs, pytest.raises(AccessError):
            TrustedServerUser().require(theirs, "here")
        with (
            contextlib.suppress(DebugServerError),
            DebugServerClient(base_url=f"http://localhost:{thief.port}", token="secret", timeout=0.2) as client,
        ):
            client.who_am_i()
        assert not thief.heard()


def test_a_library_that_does_not_tell_of_its_connections() -> None:
    """Then nothing is sent at all."""
    request = httpx.Request("GET", "http://127.0.0.1/")
    HttpTrust(TrustedServerUser(), connection_error=httpx.ConnectError).hook(request)
    with pytest.raises(AccessError, match="httpx"):
        request.extensions["trace"]("http11.send_request_headers.started", {})


def _reached(address: str) -> str:
    """The name of a relay's socket, for connect()."""
    return unquote(address.removeprefix("unix:")) if address.startswith("unix:/") else f"\0{address.partition(':')[2]}"


@pytest.fixture(params=["private", "a b%41", "open", "long" * 30])
def relay_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go: one where the relay has a file, also of an odd name, and those where it cannot."""
    with tempfile.TemporaryDirectory() as short:
        folder = Path(short) / request.param
        folder.mkdir()
        folder.chmod(0o777 if request.param == "open" else 0o700)
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        yield folder


def test_the_relay_is_for_this_process_alone(relay_folder: Path) -> None:
    """Another process that finds the relay's name gets nowhere; what this one sends arrives, and it is answered."""
    ask = "import socket, sys\nwith socket.socket(socket.AF_UNIX) as end:\n end.connect(eval(sys.argv[1]))\n"
    ask += " sys.exit(len(end.recv(9)))"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        with Relay(f"127.0.0.1:{server.getsockname()[1]}", TrustedServerUser()) as relay:
            is_file = relay.address.startswith("unix:/")
            assert is_file == (relay_folder.name in ("private", "a b%41")) == any(relay_folder.iterdir())
            name = _reached(relay.address)
            subprocess.run([sys.executable, "-c", ask, repr(name)], check=True, timeout=SECONDS)
            with socket.socket(socket.AF_UNIX) as ours:
                ours.connect(name)
                ours.sendall(b"asked")
                served, _ = server.accept()  # the first one that came
                with served:
                    assert served.recv(9) == b"asked"
                    served.sendall(b"answered")
                    served.shutdown(socket.SHUT_WR)
                    assert ours.recv(9) == b"answered"
                    assert ours.recv(9) == b""
    assert not any(relay_folder.iterdir())


def test_grpc_finds_the_relay(relay_folder: Path) -> None:
    """Whatever the name of the folder is."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with (
            Relay(f"127.0.0.1:{port}", TrustedServerUser()) as relay,
            grpc.insecure_channel(relay.address, options=relay.options) as channel,
        ):
            grpc.channel_ready_future(channel).result(SECONDS)
    finally:
        server.stop(None)


@needs_root
def test_another_user_does_not_keep_us_out_of_the_relay() -> None:
    """He knows the name of its socket, by /proc/net/unix, and cannot connect to it: its queue is ours."""
    ask = f"import os, socket, sys\nos.setuid({NOBODY})\nwith socket.socket(socket.AF_UNIX) as end:\n"
    ask += " sys.exit(end.connect_ex(eval(sys.argv[1])))"
    with Relay("127.0.0.1:9", TrustedServerUser()) as relay:
        done = subprocess.run([sys.executable, "-c", ask, repr(_reached(relay.address))], check=False, timeout=SECONDS)
    assert done.returncode == errno.EACCES
