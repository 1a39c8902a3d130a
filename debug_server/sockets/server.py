"""Who was called: the user who serves a connection, asked by the client once it is made and before it sends anything.

    connect() -> where is the other end?
        open in a process             -> the user who accepted it
        waits to be accepted          -> the user of the listener that it waits at
        closed, reset                 -> ConnectionResetError: connect again
        not listed, a local address   -> LookupError: a packet filter's doing, or the table cannot be read
        not listed, another address   -> None: on another machine

Asking before connect() would prove nothing: a listener can come between.
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
_OPEN = (ESTABLISHED, 3)  # SYN_RECV: the queue is full, and the kernel has answered for the listener
_LOOKS = 3  # a socket is accepted once at most: the look after it finds who did
_GONE = "the connection was closed at once"
_Look = Callable[[Connection], Row | None]


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
    # Netlink is not offered everywhere, and then says the same as one that finds nobody: but our end is there.
    uid = _user(_by_netlink if _by_netlink(own) else _by_proc, theirs)
    if uid is not None:
        if is_unmapped(uid):
            raise LookupError("the user at the other end is not known in this user namespace")
        return uid
    if not (theirs.host.is_loopback or theirs.host == own.host):
        return None
    if ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
        raise ConnectionResetError(_GONE)
    raise LookupError("the kernel names nobody at the other end")


def _plain(host: str) -> Address:
    return canonical(host.partition("%")[0])


def _user(look: _Look, theirs: Connection) -> int | None:
    for _ in range(_LOOKS):
        found = look(theirs)
        if found is None:
            return None
        if found.state not in _OPEN:
            break
        if found.inode:
            return found.uid
        # Nobody has accepted it yet, so the user of the listener counts. If the connection still waits afterwards, that
        # is the listener that it waits at: it cannot outlive it, and two users cannot listen at one address.
        listener = look(replace(theirs, peer_port=0))
        again = look(theirs)
        if listener is not None and again is not None and again.inode == 0 and again.state in _OPEN:
            return listener.uid
    raise ConnectionResetError(_GONE)


def _by_netlink(wanted: Connection) -> Row | None:
    """The connection, or for the peer's port 0 the listener; found exactly, as the kernel itself would."""
    return next((row for row in by_netlink(wanted) if _fits(row, wanted)), None)


def _by_proc(wanted: Connection) -> Row | None:
    """The same."""
    fitting = [row for row in by_proc(wanted.port) if _fits(row, wanted)]
    # The kernel prefers a listener of the address itself to one of all addresses, and its own family to both.
    return min(
        fitting, key=lambda row: (row.host != wanted.host, row.host.version != wanted.host.version), default=None
    )


def _fits(row: Row, wanted: Connection) -> bool:
    if row.port != wanted.port or (row.state == _LISTEN) != (wanted.peer_port == 0):
        return False
    if row.state != _LISTEN:
        return (row.host, row.peer_host, row.peer_port) == (wanted.host, wanted.peer_host, wanted.peer_port)
    every = [IPv6Address("::")] if wanted.host.version == 6 else [IPv4Address("0.0.0.0"), IPv6Address("::")]
    return row.host in (wanted.host, *every)
