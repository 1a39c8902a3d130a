"""Whether a request was sent by its peer itself: not by a web page, and not on behalf of others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from debug_server.sockets import canonical

# What a proxy says of whom it speaks for. Its own address, and as a rule its Host, are this machine's.
_PROXY_HEADERS = frozenset(
    {"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"}
)
_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Whether only this machine answers to the name or address."""
    try:
        return canonical(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """What a request's headers say of where it comes from."""

    scheme: str  # of the connection: http, https, ws or wss
    host: str | None  # as asked for, with its port
    origin: str | None
    site: str | None = None  # Sec-Fetch-Site
    headers: Collection[str] = ()  # the names of all of them, in lower case


def is_direct(sender: Sender) -> bool:
    """Whether the request was made for this machine by its peer, by none of a browser's other pages and no proxy.

    A page of another site reaches loopback through the reader's browser: its Origin or its Sec-Fetch-Site tells, and
    after DNS rebinding its Host does. A page on another port of this machine may be another user's.
    """
    if is_proxied(sender.headers) or sender.host is None or not is_loopback(_name(f"//{sender.host}")):
        return False
    if sender.origin is None:
        return sender.site in (None, "none", "same-origin")
    scheme = {"ws": "http", "wss": "https"}.get(sender.scheme, sender.scheme)
    return _place(sender.origin) == _place(f"{scheme}://{sender.host}")


def is_proxied(headers: Collection[str]) -> bool:
    """Whether a request with headers of these names came by way of a proxy."""
    return not _PROXY_HEADERS.isdisjoint(headers)


def _place(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port; what is no URL is like no other."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or url, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", url, None


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
