"""Addresses that a command may not reach by accident: special ranges, and those of the host itself."""

from __future__ import annotations

import errno
import os
import socket
import struct
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network

from debug_server.runner.egress.names import Address

Network = IPv4Network | IPv6Network

PRIVATE, LOOPBACK = "private", "loopback"

# Public names never need these. Those for documentation are not here: they lead nowhere private.
_RANGES: tuple[tuple[str, str], ...] = (
    ("metadata", "169.254.169.254/32 169.254.170.2/32 169.254.170.23/32 100.100.100.200/32 192.0.0.192/32"),
    ("metadata", "168.63.129.16/32 fd00:ec2::254/128 fd00:ec2::23/128 fd20:ce::254/128"),
    (LOOPBACK, "127.0.0.0/8 ::1/128"),
    (PRIVATE, "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 198.18.0.0/15 fc00::/7 fec0::/10"),
    ("link-local", "169.254.0.0/16 fe80::/10"),
    ("multicast", "224.0.0.0/4 ff00::/8"),
    ("unspecified", "0.0.0.0/8 ::/128"),
    ("reserved", "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4 100::/64 5f00::/16"),
    ("IPv4-in-IPv6", "::/96 ::ffff:0:0/96 ::ffff:0:0:0/96 64:ff9b::/96 64:ff9b:1::/48 2002::/16 2001::/32"),
)
_SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    sorted(
        ((ip_network(text), kind) for kind, texts in _RANGES for text in texts.split()),
        key=lambda item: -item[0].prefixlen,
    )
)

_ROUTE = struct.Struct("=IHHII")  # length, kind, flags, sequence number, port
_ROUTE_BODY = struct.Struct("=BBBBBBBBI")  # family, destination's length, …, table, protocol, scope, type, flags
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_GET_ROUTE, _REQUEST, _NEW_ROUTE, _DESTINATION = 26, 1, 24, 1
_UNICAST = 1  # every other type of route ends on this host, or nowhere


def special_range(address: Address) -> tuple[Network, str] | None:
    """The narrowest special range that has this address, and its kind; None for a public address."""
    for network, kind in _SPECIAL:
        if network.version == address.version and address in network:
            return network, kind
    return None


def is_own(address: Address) -> bool:
    """Whether the kernel delivers packets for this address to the host itself."""
    try:
        return _route_type(address) != _UNICAST
    except OSError as error:
        if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return False  # connecting fails by itself
        return _can_bind(address)  # a sandbox without netlink


def _route_type(address: Address) -> int:
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    packed = address.packed
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _DESTINATION) + packed
    body = _ROUTE_BODY.pack(family, len(packed) * 8, 0, 0, 0, 0, 0, 0, 0) + attribute
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(2)
        netlink.sendto(_ROUTE.pack(_ROUTE.size + len(body), _GET_ROUTE, _REQUEST, 1, 0) + body, (0, 0))
        reply = netlink.recv(1 << 14)
    kind = _ROUTE.unpack_from(reply)[1]
    if kind != _NEW_ROUTE:
        number = -struct.unpack_from("=i", reply, _ROUTE.size)[0]
        raise OSError(number, os.strerror(number))
    found: int = _ROUTE_BODY.unpack_from(reply, _ROUTE.size)[7]
    return found


def _can_bind(address: Address) -> bool:
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
