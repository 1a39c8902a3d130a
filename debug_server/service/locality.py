"""Whether a request comes from this machine and was not smuggled in by a web page."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether only this machine answers to the name or address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def is_local(peer: str | None, host: str | None, origin: str | None) -> bool:
    """Whether peer, ``Host`` and ``Origin`` are all of this machine.

    A page of another site reaches loopback through the reader's browser: its Origin tells, and after a rebound name
    its Host does.
    """
    if peer is None or not is_loopback(peer):
        return False
    if host is None or not is_loopback(_name(f"//{host}")):
        return False
    return origin is None or is_loopback(_name(origin))


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
