"""The kernel's list of TCP sockets, by netlink (``sock_diag``: one connection in about 50 us) or in ``/proc/net``."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

Address = IPv4Address | IPv6Address

ESTABLISHED = 1
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _DUMP = 4, 20, 0x1, 0x300
_ERROR, _DONE = 2, 3
_LOOPBACK_DEVICE = 1  # its index in every network namespace; local connections use it
_SECONDS = 2.0
_HEADER = struct.Struct("=IHHII")  # length, kind, flags, sequence number, port
_REQUEST_BODY = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_REPLY_BODY = struct.Struct("=BBBB48s12xII")  # family, state, timer, retransmits, the connection, owner, inode
_PORTS = struct.Struct("!HH")
_NO_COOKIE = b"\xff" * 8
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One TCP connection; ``host`` and ``port`` are those of the socket to look up."""

    host: Address
    port: int
    peer_host: Address | None  # None: not known
    peer_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A socket in the kernel's list; its inode identifies it while it exists, and is 0 when no process has it open."""

    state: int
    host: Address
    port: int
    peer_host: Address
    peer_port: int
    uid: int
    inode: int


def canonical(text: str) -> Address:
    """Parse an address; an IPv4-mapped IPv6 address becomes IPv4. ValueError if it is not an address."""
    address = ip_address(text)
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def by_netlink(connection: Connection) -> list[Row]:
    """The sockets of this connection; if there is none, the listener that the kernel would choose for it."""
    # An IPv4 connection may use a socket of either family. An exact query searches both, a dump only one.
    exact = connection.peer_host is not None
    families = [_FAMILIES[connection.host.version]] if exact else list(_FAMILIES.values())
    rows: list[Row] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.settimeout(_SECONDS)
            for family in families:
                kernel.sendto(_request(connection, family, exact=exact), (0, 0))
                rows += _replies(kernel, exact=exact)
    except OSError:
        return []
    return rows


def _request(connection: Connection, family: int, *, exact: bool) -> bytes:
    hosts = (connection.host, connection.peer_host) if exact else (None, None)
    packed = b"".join((host.packed if host else b"").ljust(16, b"\0") for host in hosts)
    ports = _PORTS.pack(connection.port, connection.peer_port)
    # An exact query for the loopback device finds sockets that are bound to it, and sockets that are bound to no
    # device.
    device = (_LOOPBACK_DEVICE if exact else 0).to_bytes(4, sys.byteorder)
    body = _REQUEST_BODY.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << ESTABLISHED) + ports + packed + device + _NO_COOKIE
    flags = _REQUEST if exact else _REQUEST | _DUMP
    return _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, flags, 1, 0) + body


def _replies(kernel: socket.socket, *, exact: bool) -> Iterator[Row]:
    while True:
        data, (sender, _) = kernel.recvfrom(1 << 16)
        if sender != 0:  # another process, not the kernel
            continue
        at = 0
        while at < len(data):
            length, kind, *_ = _HEADER.unpack_from(data, at)
            if kind in (_ERROR, _DONE):
                return
            yield _row(data, at + _HEADER.size)
            at += (length + 3) & ~3
        if exact:
            return


def _row(data: bytes, at: int) -> Row:
    family, state, _, _, name, uid, inode = _REPLY_BODY.unpack_from(data, at)
    port, peer_port = _PORTS.unpack_from(name)
    size = 4 if family == socket.AF_INET else 16
    return Row(
        state=state,
        host=_address(name[4 : 4 + size]),
        port=port,
        peer_host=_address(name[20 : 20 + size]),
        peer_port=peer_port,
        uid=uid,
        inode=inode,
    )


def _address(packed: bytes) -> Address:
    return canonical(socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed))


def by_proc(port: int) -> list[Row]:
    """All sockets of a port of this machine."""
    suffix = f":{port:04X}"
    rows: list[Row] = []
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        rows += (_proc_row(words) for words in map(str.split, lines) if words[1].endswith(suffix))
    return rows


def _proc_row(words: list[str]) -> Row:
    (host, port), (peer_host, peer_port) = map(_proc_address, words[1:3])
    return Row(
        state=int(words[3], 16),
        host=host,
        port=port,
        peer_host=peer_host,
        peer_port=peer_port,
        uid=int(words[7]),
        inode=int(words[9]),
    )


def _proc_address(text: str) -> tuple[Address, int]:
    """Parse ``0100007F:1F90``: the 32-bit words of the address in the byte order of this machine, then the port."""
    packed, _, port = text.partition(":")
    words = [int(packed[at : at + 8], 16) for at in range(0, len(packed), 8)]
    return _address(struct.pack(f"={len(words)}I", *words)), int(port, 16)


def is_unmapped(uid: int) -> bool:
    """Whether ``uid`` is the overflow uid, which the kernel reports for every user that this namespace does not map."""
    return uid == _overflow_uid() and Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]


@cache  # asked for each request
def _overflow_uid() -> int:
    return int(Path("/proc/sys/kernel/overflowuid").read_text())
