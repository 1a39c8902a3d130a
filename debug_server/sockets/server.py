"""For clients: finds the user who serves a connection, after connecting and before sending anything.

    connect() -> look up the other end in the kernel's table of sockets
        open in a process             -> the user who accepted it
        not accepted yet              -> the user of the listener
        closed, reset                 -> ConnectionResetError: connect again
        not listed, a local address   -> LookupError: redirected by a packet filter, or the table cannot be read
        not listed, another address   -> None: on another machine

Checking before connect() would prove nothing: another listener could start in between.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

from debug_server.sockets.table import (
    ESTABLISHED,
    Address,
    Connection,
    Row,
    by_netlink,
    by_proc,
    canonical,
    is_unmapped,
)

_LISTEN = 10
_SYN_RECV = 3  # the listener's queue is full, but the kernel has already completed the handshake
_OPEN = (ESTABLISHED, _SYN_RECV)
_ATTEMPTS = 3  # a socket is accepted at most once, so the attempt after that finds who accepted it
_GONE = "the server closed the connection as soon as it was made"
_LookUp = Callable[[Connection], Row | None]


def serving_user(ours: socket.socket) -> int | None:
    """The user at the other end of a connected socket; None on another machine, or where this is not Linux."""
    if sys.platform != "linux":
        return None
    try:
        (host, port), (peer_host, peer_port) = ours.getsockname()[:2], ours.getpeername()[:2]
    except OSError as error:
        raise ConnectionResetError(_GONE) from error
    own = Connection(host=_plain(host), port=port, peer_host=_plain(peer_host), peer_port=peer_port)
    theirs = Connection(host=_plain(peer_host), port=peer_port, peer_host=own.host, peer_port=port)
    # Without netlink support the answer is empty too. Our own end must be listed, so use it to test for support.
    uid = _user(_by_netlink if _by_netlink(own) else _by_proc, theirs)
    if uid is not None:
        if is_unmapped(uid):
            raise LookupError("the user at the other end is not known in this user namespace")
        return uid
    if not (theirs.host.is_loopback or theirs.host == own.host):
        return None
    if ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
        raise ConnectionResetError(_GONE)
    raise LookupError("the kernel lists no socket for the other end of this connection")


def _plain(host: str) -> Address:
    return canonical(host.partition("%")[0])


def _user(look_up: _LookUp, theirs: Connection) -> int | None:
    for _ in range(_ATTEMPTS):
        found = look_up(theirs)
        if found is None:
            return None
        if found.state not in _OPEN:
            break
        if found.inode:
            return found.uid
        # Not accepted yet, so the user of the listener counts. If the connection is still not accepted after the
        # listener was looked up, it belongs to that listener: it is reset when its listener closes, and only one user
        # can listen on an address.
        listener = look_up(replace(theirs, peer_port=0))
        again = look_up(theirs)
        if listener is not None and again is not None and again.inode == 0 and again.state in _OPEN:
            return listener.uid
    raise ConnectionResetError(_GONE)


def _by_netlink(wanted: Connection) -> Row | None:
    """The row of the connection or, if the peer's port is 0, of its listener, chosen by the kernel's own rules."""
    return next((row for row in by_netlink(wanted) if _matches(row, wanted)), None)


def _by_proc(wanted: Connection) -> Row | None:
    """Like ``_by_netlink``, from ``/proc/net``."""
    matching = [row for row in by_proc(wanted.port) if _matches(row, wanted)]
    # The kernel prefers a listener on this very address to a wildcard one, and a listener of the same family to others.
    return min(
        matching, key=lambda row: (row.host != wanted.host, row.host.version != wanted.host.version), default=None
    )


def _matches(row: Row, wanted: Connection) -> bool:
    if row.port != wanted.port or (row.state == _LISTEN) != (wanted.peer_port == 0):
        return False
    if row.state != _LISTEN:
        return (row.host, row.peer_host, row.peer_port) == (wanted.host, wanted.peer_host, wanted.peer_port)
    every = [IPv6Address("::")] if wanted.host.version == 6 else [IPv4Address("0.0.0.0"), IPv6Address("::")]
    return row.host in (wanted.host, *every)
