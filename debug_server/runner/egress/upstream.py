"""The operator's own proxy: where the host itself reaches the network only through one."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from urllib.parse import unquote, urlsplit

from debug_server.errors import ConfigurationError
from debug_server.runner.egress.names import Host, HostError, format_authority, parse_authority


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """One proxy that speaks HTTP."""

    host: Host
    port: int
    authorization: str | None = field(default=None, repr=False)  # the value of Proxy-Authorization

    def headers(self) -> list[tuple[str, str]]:
        """What it wants in each request."""
        return [("Proxy-Authorization", self.authorization)] if self.authorization else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Which targets go through which proxy."""

    http: Proxy | None = None
    https: Proxy | None = None
    direct: tuple[str, ...] = ()  # NO_PROXY

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Upstream:
        """From HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in lower case first, as curl reads them."""
        direct = _value(environ, "no_proxy")[1].replace(",", " ").split()
        return cls(http=_proxy(environ, "http_proxy"), https=_proxy(environ, "https_proxy"), direct=tuple(direct))

    def proxy_for(self, host: Host, port: int, *, tunnel: bool) -> Proxy | None:
        """The proxy for a target; None: connect directly."""
        proxy = self.https if tunnel else self.http
        if proxy is None or any(_covers(entry, host, port) for entry in self.direct):
            return None
        return proxy


def _value(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    for each in (name, name.upper()):
        if value := environ.get(each, "").strip():
            return each, value
    return name, ""


def _proxy(environ: Mapping[str, str], name: str) -> Proxy | None:
    found, value = _value(environ, name)
    if not value:
        found, value = _value(environ, "all_proxy")
    if not value:
        return None
    parts = urlsplit(value if "://" in value else f"http://{value}")
    if parts.scheme.lower() != "http":
        raise ConfigurationError(f"{found}: its scheme is {parts.scheme!r}: name a proxy by http://host:port")
    user, at, authority = parts.netloc.rpartition("@")
    try:
        host, port = parse_authority(authority, 80)
    except HostError as error:
        raise ConfigurationError(f"{found}: {error}") from None
    return Proxy(host=host, port=port, authorization=_basic(user) if at else None)


def _basic(user: str) -> str:
    name, _, password = user.partition(":")
    return "Basic " + base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()


def _covers(entry: str, host: Host, port: int) -> bool:
    if entry == "*":
        return True
    try:
        if "/" in entry:
            return not isinstance(host, str) and host in ip_network(entry, strict=False)
        if entry.count(":") > 1 and not entry.startswith("["):
            entry = f"[{entry}]"
        name, wanted = parse_authority(entry.removeprefix("*").removeprefix("."), port)
    except ValueError:
        return False  # an entry for other programs
    if wanted != port:
        return False
    return name == host or (isinstance(name, str) and isinstance(host, str) and host.endswith(f".{name}"))


def connect_head(host: Host, port: int, proxy: Proxy) -> bytes:
    """The request for a tunnel through ``proxy``."""
    authority = format_authority(host, port)
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    lines += [f"{name}: {value}" for name, value in proxy.headers()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
