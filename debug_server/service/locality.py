"""Whether a request was sent by its peer itself: not by a web page, and not on behalf of others."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from debug_server.service.socket_owner import canonical

# What a proxy says of whom it speaks for. Its own address, and as a rule its Host, are this machine's.
_HANDED_ON = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"})


def is_loopback(host: str) -> bool:
    """Whether only this machine answers to the name or address."""
    try:
        return canonical(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def is_direct(host: str | None, origin: str | None, headers: Collection[str] = ()) -> bool:
    """Whether ``Host`` and ``Origin`` name this machine, and no proxy says that it speaks for another.

    A page of another site reaches loopback through the reader's browser: its Origin tells, and after a rebound name
    its Host does. ``headers`` are the names of those that came along, in lower case.
    """
    if is_handed_on(headers) or host is None or not is_loopback(_name(f"//{host}")):
        return False
    return origin is None or is_loopback(_name(origin))


def is_handed_on(headers: Collection[str]) -> bool:
    """Whether a request with headers of these names came by way of a proxy."""
    return not _HANDED_ON.isdisjoint(headers)


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
