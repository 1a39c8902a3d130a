"""Which addresses callbacks may be sent to; the address of the connection is checked, not only its name."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from debug_server.errors import ConfigurationError, InvalidInputError

PUBLIC = "public"
_LOCALHOST = "localhost"
_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_FIELD = "status_callback_url"
_METADATA = frozenset({ip_address("100.100.100.200"), ip_address("fd00:ec2::254")})
_NAT64 = ip_network("64:ff9b::/96")
Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A URL and the checked address to connect to."""

    scheme: str
    host: str  # as in the URL
    address: Address
    port: int
    path: str


class Targets:
    """The allow-list of callback targets."""

    def __init__(self, allowed: str | None) -> None:
        self._names: set[str] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        self._public = allowed is None
        for entry in (part.strip() for part in (allowed or "").split(",")):
            self._add(entry)

    def _add(self, entry: str) -> None:
        if entry == PUBLIC:
            self._public = True
        elif entry.lower().rstrip(".") == _LOCALHOST:
            self._networks += _LOOPBACK  # this machine, by any of its names and addresses
        elif entry:
            try:
                self._networks.append(ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                if "/" in entry or ":" in entry:
                    raise ConfigurationError(
                        f"HOST_RUNNER_CALLBACK_ALLOW: {entry!r} is not a name, address or network (without a port)"
                    ) from None
                self._names.add(entry.lower().rstrip("."))

    def check_url(self, url: str) -> None:
        """Refuse a URL whose host is an address, or localhost, that is not allowed."""
        host = urlsplit(url).hostname or ""
        try:
            address = ip_address(host)
        except ValueError:
            allowed = host.lower().rstrip(".") != _LOCALHOST or self._allows(host, ip_address("127.0.0.1"))
            if not allowed:
                raise self._refused(host, None) from None
        else:
            if not self._allows(host, address):
                raise self._refused(host, address)

    async def resolve(self, url: str) -> Target:
        """The target with a checked address; the name is looked up once, so that address is the one that is used."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [ip_address(str(item[4][0]).partition("%")[0]) for item in found]
        for address in addresses:
            if self._allows(host, address):
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                return Target(scheme=parts.scheme, host=host, address=address, port=port, path=path)
        raise self._refused(host, addresses[0] if addresses else None)

    def _allows(self, host: str, address: Address) -> bool:
        real = _embedded(address)
        if host.lower().rstrip(".") in self._names:
            return True
        if any(
            item.version == network.version and item in network
            for item in {address, real}
            for network in self._networks
        ):
            return True
        return self._public and not any(_is_internal(item) or _is_own(item) for item in (real, address))

    def _refused(self, host: str, address: Address | None) -> InvalidInputError:
        where = host if address is None or str(address) == host else f"{host} ({address})"
        return InvalidInputError(
            f"{_FIELD}: callbacks to {where} are not allowed: an operator can name it in HOST_RUNNER_CALLBACK_ALLOW",
            field=_FIELD,
        )


def _embedded(address: Address) -> Address:
    """The version 4 address that a version 6 one stands for, if it does."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_own(address: Address) -> bool:
    """Whether it is an address of this machine: only then the kernel's source address is the target address.

    Connecting a datagram socket looks up the route and sends nothing.
    """
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:  # no route: not this machine, and not reachable
            return False
        return ip_address(str(probe.getsockname()[0]).partition("%")[0]) == address


def _is_internal(address: Address) -> bool:
    """Whether it is this machine, its link, a metadata service or not a single machine."""
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
        or address.is_reserved
        or address in _METADATA
        or (isinstance(address, IPv4Address) and int(address) >> 24 == 0)
    )
