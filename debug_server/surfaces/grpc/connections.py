"""Closes gRPC connections whose caller is not identified: after a timeout, or when there are too many.

The gRPC library counts all connections alike and does not list them. So they are found among the descriptors of this
process, and closed by a shutdown of their socket, which the library sees as a disconnected peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from debug_server.service.identified_peers import Address, IdentifiedPeers

_LOG = logging.getLogger(__name__)
_SWEEP_SECONDS, _CROWDED_SECONDS = 1.0, 0.1
_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(slots=True, kw_only=True)
class _Connection:
    address: Address | None  # None: not a connection of this port
    descriptor: int
    since: float
    cut: bool = False


class Connections:
    """The accepted connections of one port of this process."""

    def __init__(
        self, identified: IdentifiedPeers, *, port: int, max_unidentified: int, unidentified_seconds: float
    ) -> None:
        self._identified = identified
        self._port = port
        self._max_unidentified = max_unidentified  # maximum number of unidentified connections
        self._seconds = unidentified_seconds  # maximum age of an unidentified connection
        self._found: dict[str, _Connection] = {}  # by the kernel's name of the socket

    async def watch(self) -> None:
        """Sweep repeatedly until cancelled."""
        while True:
            crowded = self.sweep()
            await asyncio.sleep(_CROWDED_SECONDS if crowded else _SWEEP_SECONDS)

    def sweep(self) -> bool:
        """Close overdue and excess connections; returns whether there was an excess."""
        self._update()
        connected = {item.address for item in self._found.values() if item.address is not None}
        self._identified.forget_closed(connected)
        now = time.monotonic()
        unidentified = [
            (name, item)
            for name, item in self._found.items()
            if item.address is not None and item.address not in self._identified and not item.cut
        ]
        unidentified.sort(key=lambda pair: pair[1].since)
        excess = max(0, len(unidentified) - self._max_unidentified)
        late = sum(now - item.since > self._seconds for _, item in unidentified)
        for name, item in unidentified[: max(excess, late)]:
            self._cut(name, item)
        if excess:
            _LOG.warning(
                "grpc_unidentified_connections_closed", extra={"closed": excess, "limit": self._max_unidentified}
            )
        return bool(excess)

    def _update(self) -> None:
        """Add new sockets and remove closed ones."""
        present = {}
        for entry in os.listdir(_DESCRIPTORS):  # noqa: PTH208  names, not paths
            with contextlib.suppress(OSError):
                name = os.readlink(f"/proc/self/fd/{entry}")  # noqa: PTH115  the text as the kernel gives it
                if name.startswith("socket:"):
                    present[name] = int(entry)
        for name in self._found.keys() - present.keys():
            del self._found[name]
        for name, descriptor in present.items():
            if name not in self._found:
                address = self._address(name, descriptor)
                self._found[name] = _Connection(address=address, descriptor=descriptor, since=time.monotonic())

    def _address(self, name: str, descriptor: int) -> Address | None:
        with contextlib.suppress(OSError, ValueError), _duplicate(name, descriptor) as ours:
            if ours.family in (socket.AF_INET, socket.AF_INET6) and ours.getsockname()[1] == self._port:
                host, port = ours.getpeername()[:2]
                return _without_ipv4_mapping(host), port
        return None

    def _cut(self, name: str, item: _Connection) -> None:
        item.cut = True
        with contextlib.suppress(OSError), _duplicate(name, item.descriptor) as ours:
            ours.shutdown(socket.SHUT_RDWR)


def _duplicate(name: str, descriptor: int) -> socket.socket:
    """Duplicate the socket with this name; OSError if the descriptor now belongs to another file."""
    copy = os.dup(descriptor)
    if os.readlink(f"/proc/self/fd/{copy}") != name:  # noqa: PTH115  the text as the kernel gives it
        os.close(copy)
        raise OSError(errno.EBADF, "the descriptor now belongs to another file", name)
    return socket.socket(fileno=copy)


def _without_ipv4_mapping(host: str) -> str:
    """The address as the library writes it: an IPv4-mapped IPv6 address as IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
