"""The kernel's word on who serves a connection, in every state that its other end can be in."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from debug_server.sockets import serving_user
from tests.running import lasting_port

NOBODY = 65534
ADDRESSES = [
    ("127.0.0.1", "127.0.0.1"),
    ("127.0.0.1", "0.0.0.0"),
    ("127.0.0.1", "::ffff:127.0.0.1"),
    ("0.0.0.0", "127.0.0.9"),
    ("::1", "::1"),
    ("::1", "::"),
    ("::", "::1"),
    ("::", "127.0.0.1"),
]
ACCEPT_AND_CLOSE = """
import os, socket, sys
os.setuid(65534)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    print("listening", flush=True)
    connection, _ = listener.accept()
print("accepted", flush=True)
input()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _listener(host: str) -> socket.socket:
    return socket.create_server((host, 0), family=_family(host), dualstack_ipv6=host == "::")


@pytest.fixture(params=["netlink", "proc"])
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either way to ask."""
    if request.param == "proc":
        monkeypatch.setattr("debug_server.sockets.server.by_netlink", lambda connection: [])


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(("server", "called"), ADDRESSES)
def test_who_serves(server: str, called: str) -> None:
    """Before and after it is accepted; a connection that the server closed is no longer anybody's."""
    with _listener(server) as listener, socket.socket(_family(called)) as ours:
        ours.connect((called, listener.getsockname()[1]))
        assert serving_user(ours) == os.geteuid()
        accepted, _ = listener.accept()
        assert serving_user(ours) == os.geteuid()
        accepted.close()
        with pytest.raises(ConnectionResetError):
            serving_user(ours)


@needs_root
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(("server", "called"), ADDRESSES)
def test_whoever_accepts_is_the_server(server: str, called: str) -> None:
    """While it waits the listener's user counts, and then the user who accepted it."""
    os.seteuid(NOBODY)
    try:
        listener = _listener(server)
    finally:
        os.seteuid(0)
    with listener, socket.socket(_family(called)) as ours:
        ours.connect((called, listener.getsockname()[1]))
        assert serving_user(ours) == NOBODY
        with listener.accept()[0]:
            assert serving_user(ours) == 0


@needs_root
@pytest.mark.usefixtures("table")
def test_a_later_listener_is_not_the_server() -> None:
    """Another user accepts, closes his listener and ours takes its place: the connection is still his."""
    port = lasting_port()
    argv = [sys.executable, "-I", "-S", "-c", ACCEPT_AND_CLOSE, str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as thief:
        assert thief.stdout is not None and thief.stdin is not None
        assert thief.stdout.readline() == "listening\n"
        with socket.create_connection(("127.0.0.1", port)) as ours:
            assert thief.stdout.readline() == "accepted\n"
            with socket.create_server(("127.0.0.1", port)):
                assert serving_user(ours) == NOBODY
            thief.stdin.write("\n")


@pytest.mark.usefixtures("table")
def test_a_server_that_is_reset() -> None:
    """The kernel names nobody for a connection that is over: it is made again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
    with ours, pytest.raises(ConnectionResetError):
        serving_user(ours)


def test_nobody_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither netlink nor /proc shows the other end of a local connection, that is an error, not a permission."""
    monkeypatch.setattr("debug_server.sockets.server.by_netlink", lambda connection: [])
    monkeypatch.setattr("debug_server.sockets.server.by_proc", lambda port: [])
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
        pytest.raises(LookupError),
    ):
        serving_user(ours)
