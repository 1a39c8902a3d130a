"""Checks with the kernel that a caller without a token is the server's own user."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.runner.server_processes import is_started_by_server, socket_holders
from debug_server.service.request_origin import RequestOrigin, is_direct
from debug_server.sockets import Connection, SocketOwner, SocketOwners, canonical

SOCKET = "debug_server.socket"
"""The key of a connection's socket in the ``state`` of its requests."""

_SINGLE_HEADERS = frozenset({"host", "origin", "sec-fetch-site"})
_ESTABLISHED = 1
_SO_PEERPIDFD = 77
_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid
_MAX_CACHED_CONNECTIONS = 4096  # connections whose processes were examined
_TOKEN_ADVICE = (
    "send `Authorization: Bearer TOKEN`; the server's user makes a token with `debug-server token create NAME`, and "
    "`debug-server configure --base-url URL --token -` saves it"
)
_ELSEWHERE = "the caller is not on this machine"
_INDIRECT = "the request names a host other than this machine, or comes from a web page or through a proxy"
_OTHER_USER = "the caller is not the server's own user"
_GONE = "the caller's connection was closed or cannot be found"
_STARTED_BY_SERVER = "the caller was started by a server, or its process cannot be examined"


def missing_token_message(reason: str) -> str:
    """The message for a caller without a token that is not the server's own user."""
    return f"no token was given, and {reason}: {_TOKEN_ADVICE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpPeer:
    """The caller at the other end of a TCP connection."""

    host: str
    port: int
    server_host: str | None  # None: unknown, so any address of the server
    server_port: int
    socket: socket.socket | None = None  # our end, where it is known


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixPeer:
    """The caller at the other end of a unix socket."""

    socket: socket.socket


Peer = TcpPeer | UnixPeer
RunBlocking = Callable[..., Awaitable[Any]]


def http_peer(scope: Mapping[str, Any]) -> Peer | None:
    """The caller of an ASGI connection; None if the ASGI server does not name it."""
    ours = (scope.get("state") or {}).get(SOCKET)
    if ours is not None and ours.family == socket.AF_UNIX:
        return UnixPeer(socket=ours)
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None or server[1] is None:
        return None
    return TcpPeer(host=client[0], port=client[1], server_host=server[0], server_port=server[1], socket=ours)


def http_sender(scope: Mapping[str, Any]) -> RequestOrigin | None:
    """The origin of an ASGI request; None if a header of _SINGLE_HEADERS is repeated.

    A proxy in front could have checked the other value of a repeated header.
    """
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    given = [(name, value) for name, value in headers if name in _SINGLE_HEADERS]
    found = dict(given)
    if len(found) < len(given):
        return None
    return RequestOrigin(
        scheme=scope["scheme"],
        host=found.get("host"),
        origin=found.get("origin"),
        site=found.get("sec-fetch-site"),
        headers={name for name, _ in headers},
    )


class OwnUser:
    """Checks callers without a token; ``call`` runs blocking functions outside the event loop."""

    def __init__(self, call: RunBlocking, *, uid: int | None = None) -> None:
        self._call = call
        self._uid = os.geteuid() if uid is None else uid
        self._owners = SocketOwners()
        self._examined: dict[Connection, SocketOwner] = {}

    async def why_not_own_user(self, peer: Peer | None) -> str | None:
        """Why the caller does not count as the server's own user; None if it does."""
        if peer is None:
            return _ELSEWHERE
        if isinstance(peer, TcpPeer) and self._owners.answers_at_once and self._was_examined(peer):
            return None  # without a change of threads, which would take longer than the check
        found: str | None = await self._call(self._refusal, peer)
        return found

    async def why_not_own_http_user(self, scope: Mapping[str, Any]) -> str | None:
        """As ``why_not_own_user``, for an ASGI request: Host must be this machine, and Origin the server itself."""
        sender = http_sender(scope)
        if sender is None or not is_direct(sender):
            return _INDIRECT
        return await self.why_not_own_user(http_peer(scope))

    def _refusal(self, peer: Peer) -> str | None:
        return self._check_unix_peer(peer) if isinstance(peer, UnixPeer) else self._check_tcp_peer(peer)

    def _check_unix_peer(self, peer: UnixPeer) -> str | None:
        try:
            raw = peer.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return _GONE
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        if uid != self._uid:
            return _OTHER_USER
        if pid <= 0 or is_started_by_server(pid) or not _is_alive(peer.socket):
            return _STARTED_BY_SERVER
        return None

    def _check_tcp_peer(self, peer: TcpPeer) -> str | None:
        connection = _connection(peer)
        if connection is None or not connection.host.is_loopback:
            return _ELSEWHERE
        owner = self._owners.find(connection)
        # Check our end last: if the caller had closed its end, another process could have its port by now.
        if owner is None or not is_open(peer.socket):
            return _GONE
        if owner.uid != self._uid:
            return _OTHER_USER
        return self._check_processes(connection, owner)

    def _check_processes(self, connection: Connection, owner: SocketOwner) -> str | None:
        """Every process with the socket must be the user's own; checked once for each connection."""
        if self._examined.get(connection) == owner:
            return None
        pids = socket_holders(owner.inode)
        if not pids or any(not self._is_own(pid) or is_started_by_server(pid) for pid in pids):
            return _STARTED_BY_SERVER
        if len(self._examined) >= _MAX_CACHED_CONNECTIONS:
            self._examined.clear()
        self._examined[connection] = owner
        return None

    def _was_examined(self, peer: TcpPeer) -> bool:
        """Whether the processes at the other end were examined, and it is still the same open socket."""
        connection = _connection(peer)
        examined = None if connection is None else self._examined.get(connection)
        if connection is None or examined is None:
            return False
        return self._owners.find(connection) == examined and is_open(peer.socket)

    def _is_own(self, pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}").stat().st_uid == self._uid
        except OSError:
            return False


def _connection(peer: TcpPeer) -> Connection | None:
    """The caller's end of a connection; None if an address cannot be read."""
    try:
        host, server = canonical(peer.host), canonical(peer.server_host) if peer.server_host else None
    except ValueError:
        return None
    return Connection(host=host, port=peer.port, peer_host=server, peer_port=peer.server_port)


def _is_alive(ours: socket.socket) -> bool:
    """Whether the process that connected still runs; checked last, because its pid may be reused afterwards."""
    try:
        descriptor = ours.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        return error.errno == errno.ENOPROTOOPT  # a kernel before 6.5 cannot say
    try:
        signal.pidfd_send_signal(descriptor, 0)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def is_open(ours: socket.socket | None) -> bool:
    """Whether the peer of a TCP connection has closed neither half; True where that is not known."""
    if ours is None:
        return True
    try:
        return ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED
    except OSError:
        return False
