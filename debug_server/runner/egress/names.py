"""Hosts as text: a DNS name in one canonical form, or an address, and nothing in between."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address
Host = str | Address

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[0-9]{1,5}")
_MAX_NAME = 253


class HostError(ValueError):
    """A text is neither a DNS name nor an address; ``str()`` says what is wrong with it."""


def parse_host(text: str) -> Host:
    """The name in lower case, without its final dot and in ASCII; or the address.

    An address must be written in full: ``2130706433``, ``0177.0.0.1`` and ``0x7f.1`` are addresses to some programs and
    names to others, so they are refused.
    """
    if text.startswith("["):
        return _bracketed(text)
    name = _to_ascii(text.lower()).removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return IPv4Address(text)
        except ValueError:
            raise HostError(f"{text!r} is not an address in the form 192.0.2.1") from None
    if len(name) > _MAX_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise HostError(f"{text[:_MAX_NAME]!r} is not a host name")
    return name


def _bracketed(text: str) -> IPv6Address:
    try:
        address = IPv6Address(text[1:].removesuffix("]"))
    except ValueError:
        address = None
    if address is None or address.scope_id is not None or not text.endswith("]"):
        raise HostError(f"{text!r} is not an address in the form [2001:db8::1]")
    return address


def _to_ascii(text: str) -> str:
    if text.isascii():
        return text
    try:
        return text.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise HostError(f"{text!r} is not a host name") from None


def parse_authority(text: str, default_port: int | None = None) -> tuple[Host, int]:
    """Host and port of ``host:port`` or ``[address]:port``."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    if not port:
        if colon and not text.endswith("]"):
            raise HostError(f"{text!r} has no port after the colon")
        if default_port is None:
            raise HostError(f"{text!r} has no port: write {text}:443, for example")
        return parse_host(host), default_port
    return parse_host(host), parse_port(port)


def parse_port(text: str) -> int:
    """A port from 1 to 65535."""
    if not _PORT.fullmatch(text) or not 0 < int(text) < 1 << 16:
        raise HostError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


def format_authority(host: Host, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if isinstance(host, IPv6Address) else f"{host}:{port}"


def parse_sni(text: str) -> Host:
    """The host that a TLS client names: a DNS name, or an address without brackets."""
    try:
        return ip_address(text)
    except ValueError:
        return parse_host(text)
