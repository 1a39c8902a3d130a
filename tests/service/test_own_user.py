"""The kernel's word on who calls: owners of sockets, and processes that the server started."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from debug_server.runner.keeper.tree import descendants
from debug_server.service.own_user import SOCKET, OwnUser, TcpPeer, UnixPeer, http_peer
from debug_server.sockets import Connection, SocketOwners, canonical
from tests.running import MECHANISMS, ROOT, Bench, missing_mechanism

ADDRESSES = [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("127.0.0.1", "::ffff:127.0.0.1")]


@contextmanager
def connected(server: str, called: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A caller's socket and the server's end of it."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.create_server((server, 0), family=family) as listener:
        caller = socket.socket(socket.AF_INET6 if ":" in called else socket.AF_INET)
        with caller:
            caller.connect((called, listener.getsockname()[1]))
            ours, _ = listener.accept()
            with ours:
                yield caller, ours


def seen(ours: socket.socket, *, exact: bool = True) -> Connection:
    """The connection as a server knows it."""
    (host, port), (server_host, server_port) = ours.getpeername()[:2], ours.getsockname()[:2]
    return Connection(
        host=canonical(host),
        port=port,
        peer_host=canonical(server_host) if exact else None,
        peer_port=server_port,
    )


def peer_of(ours: socket.socket) -> TcpPeer:
    """The same connection, as ``OwnUser`` takes it."""
    (host, port), (server_host, server_port) = ours.getpeername()[:2], ours.getsockname()[:2]
    return TcpPeer(host=host, port=port, server_host=server_host, server_port=server_port, socket=ours)


async def _at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def refusal(peer: Any, uid: int | None = None) -> str | None:
    """Why the peer is refused; None when it is the server's own user."""
    return asyncio.run(OwnUser(_at_once, uid=uid).why_not_own_user(peer))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("netlink", [True, False])
@pytest.mark.parametrize(("server", "called"), ADDRESSES)
def test_the_owner_of_a_socket(
    server: str, called: str, netlink: bool, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by netlink and in /proc, for both families and IPv4 written as IPv6; only while it is open both ways."""
    if not netlink:
        monkeypatch.setattr("debug_server.sockets.caller.by_netlink", lambda connection: [])
    with connected(server, called) as (caller, ours):
        connection = seen(ours, exact=exact)
        found = SocketOwners().find(connection)
        assert found is not None
        assert (found.uid, found.inode) == (os.geteuid(), os.fstat(caller.fileno()).st_ino)
        caller.shutdown(socket.SHUT_WR)
        assert SocketOwners().find(connection) is None
        caller.close()  # an orphan now: without an inode, which older kernels say is root's
        assert SocketOwners().find(connection) is None


def test_the_own_user_and_others() -> None:
    """The same user is known; for a server of another user, root's or anybody's socket is another's."""
    with connected("127.0.0.1", "127.0.0.1") as (caller, ours):
        peer = peer_of(ours)
        assert refusal(peer) is None
        assert "not the server's own user" in (refusal(peer, uid=os.geteuid() + 1) or "")
        caller.close()
        assert "closed" in (refusal(peer) or "")
    assert "not on this machine" in (refusal(None) or "")


def test_a_unix_socket_s_peer() -> None:
    """The process at the other end is known by its credentials, and no longer once it has ended."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = http_peer({"state": {SOCKET: ours}, "client": None, "server": None})
        assert peer == UnixPeer(socket=ours)
        assert refusal(peer) is None
        assert "not the server's own user" in (refusal(peer, uid=os.geteuid() + 1) or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a socket of another user's")
def test_a_socket_of_another_user() -> None:
    """What counts is who made the socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.seteuid(65534)
        try:
            caller = socket.create_connection(listener.getsockname())
        finally:
            os.seteuid(0)
        with caller, listener.accept()[0] as ours:
            assert "not the server's own user" in (refusal(peer_of(ours)) or "")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_command_is_told_by_its_containment(tmp_path: Path, mechanism: str) -> None:
    """Under every mechanism a command's processes are recognised, also one with an empty environment."""
    if reason := missing_mechanism(mechanism):
        pytest.skip(reason)
    ask = (
        "import sys\nfrom debug_server.runner.server_processes import is_started_by_server\n"
        "print(*map(is_started_by_server, map(int, sys.argv[1:])))"
    )
    bench = Bench(tmp_path, mechanism)
    try:
        started = bench.start(["sh", "-c", "env -i setsid sleep 600 & echo up; wait"])
        started.await_output(b"up")
        pids = descendants(started.handle()["keeper"]["pid"])
        assert len(pids) >= 2
        done = subprocess.run(
            [sys.executable, "-c", ask, *map(str, pids), str(os.getpid())],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["True"] * len(pids) + ["False"]
        bench.supervisor.pipeline.cancel(started.command.id)
        started.result()
    finally:
        bench.close()
