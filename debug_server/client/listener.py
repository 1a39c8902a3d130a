"""Who listens at a loopback address: a token must not go to a port that another user of this machine has taken.

Only the kernel's own lists are asked (``/proc/net/tcp``, ``/proc/net/tcp6``). Where there are none, nothing is checked.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from debug_server.errors import AccessError

_ROOT = 0
_LISTENS = "0A"
_PORTS = {"http": 80, "https": 443}
Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedServer:
    """Whose server may be sent a token: this user's, root's, and that of ``uid``."""

    uid: int | None = None

    def require(self, url: str) -> None:
        """AccessError when another user listens at the URL's address on this machine."""
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
        host = parts.hostname or ""
        trusted = {os.geteuid(), _ROOT, self.uid}
        for address in _addresses(host):
            for uid in listening_users(address, port):
                if uid not in trusted:
                    raise AccessError(_sentence(f"{parts.scheme}://{parts.netloc}", uid))

    def before_request(self, request: Any) -> None:
        """For the event hooks of an HTTP client."""
        self.require(str(request.url))

    async def before_async_request(self, request: Any) -> None:
        """The same where nothing may block."""
        await asyncio.to_thread(self.require, str(request.url))


def listening_users(address: Address, port: int) -> set[int]:
    """Whose listener a connection to a loopback address meets; empty when nobody listens, or none can be told."""
    if not address.is_loopback:
        return set()
    found: dict[Address, set[int]] = {}
    for name in ("tcp", "tcp6"):
        for host, its_port, uid in _listeners(Path("/proc/net", name)):
            if its_port == port:
                found.setdefault(host, set()).add(uid)
    # The kernel prefers a listener of the address itself to one of all addresses, and its own family to both.
    every: list[Address] = [IPv6Address("::")]
    if address.version == 4:
        every.insert(0, IPv4Address("0.0.0.0"))
    return next((found[host] for host in (address, *every) if host in found), set())


def _sentence(place: str, uid: int) -> str:
    try:
        user = f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        user = f"uid {uid}"
    return (
        f"{place} is served by user {user}, not by you or root: the token was not sent. If it is the one you mean, "
        f"run `debug-server configure --base-url {place} --server-user {uid}`"
    )


def _addresses(host: str) -> list[Address]:
    """Every address that a connection to ``host`` may take."""
    try:
        return [_plain(host)]
    except ValueError:
        return _resolved(host) if host == "localhost" else _resolved_once(host)


def _resolved(host: str) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:  # the connection will say so
        return []
    return [_plain(str(place[0]).partition("%")[0]) for *_, place in found]


_resolved_once = lru_cache(maxsize=64)(_resolved)


def _plain(text: str) -> Address:
    address = ip_address(text)
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _listeners(path: Path) -> Iterator[tuple[Address, int, int]]:
    """Address, port and user of each; the kernel lists them before all connections, which are not read."""
    try:
        with path.open() as file:
            next(file, "")
            for words in takewhile(lambda words: words[3] == _LISTENS, (line.split() for line in file)):
                packed, _, port = words[1].partition(":")
                numbers = [int(packed[at : at + 8], 16) for at in range(0, len(packed), 8)]
                raw = struct.pack(f"={len(numbers)}I", *numbers)
                yield _plain(str(ip_address(raw))), int(port, 16), int(words[7])
    except OSError:
        return
