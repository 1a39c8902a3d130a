"""Checks that a request comes directly from its peer: not from another origin's web page, and not through a proxy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from debug_server.sockets import canonical

# Headers that a proxy adds for its client. A local proxy's own address, and usually its Host, are this machine's.
_PROXY_HEADERS = frozenset(
    {"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"}
)
_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Whether the name or address is loopback."""
    try:
        return canonical(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOrigin:
    """The origin of a request by its headers."""

    scheme: str  # of the connection: http, https, ws or wss
    host: str | None  # the Host header, with its port
    origin: str | None
    site: str | None = None  # Sec-Fetch-Site
    headers: Collection[str] = ()  # the names of all of them, in lower case


def is_direct(sender: RequestOrigin) -> bool:
    """Whether the request names this machine and comes from its peer, not from another origin's page or a proxy.

    A page of another site can send requests to loopback through a browser: the Origin or Sec-Fetch-Site header shows
    it, and after DNS rebinding the Host header does. A page on another port of this machine may be another user's.
    """
    if is_proxied(sender.headers) or sender.host is None or not is_loopback(_name(f"//{sender.host}")):
        return False
    if sender.origin is None:
        return sender.site in (None, "none", "same-origin")
    scheme = {"ws": "http", "wss": "https"}.get(sender.scheme, sender.scheme)
    return _origin(sender.origin) == _origin(f"{scheme}://{sender.host}")


def is_proxied(headers: Collection[str]) -> bool:
    """Whether one of these header names shows that a proxy forwarded the request."""
    return not _PROXY_HEADERS.isdisjoint(headers)


def _origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port; an invalid URL equals no other."""
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
