"""The way out: checks a target against the policy, and connects to the very address that was checked."""

from __future__ import annotations

import errno
import os
import socket
import time
from dataclasses import dataclass, field
from ipaddress import IPv6Address

from debug_server.runner.egress.addresses import is_own
from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.denials import Denied
from debug_server.runner.egress.loop import Loop, TimedOut
from debug_server.runner.egress.names import Address, Host, format_authority
from debug_server.runner.egress.policy import NameRule, Policy
from debug_server.runner.egress.request import BadRequestError, read_head
from debug_server.runner.egress.resolver import Lookup, Resolver, UnresolvedError, lookup
from debug_server.runner.egress.stream import Stream
from debug_server.runner.egress.upstream import Proxy, Upstream, connect_head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.egress.loop import Steps


class UnreachableError(Exception):
    """The policy allows the target, but no connection to it can be made; ``str()`` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection to a server; with ``proxy``, to the operator's proxy, which wants requests in absolute form."""

    stream: Stream
    proxy: Proxy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What the proxy knows of the host."""

    own_ports: frozenset[int] = frozenset()  # of our own server
    upstream: Upstream = field(default_factory=Upstream)
    lookup: Lookup = lookup


class Dialer:
    """Opens the connections of one command."""

    def __init__(self, loop: Loop, policy: Policy, outside: Outside, bounds: Bounds) -> None:
        self._loop, self._policy, self._outside, self._bounds = loop, policy, outside, bounds
        self._resolver = Resolver(
            loop, outside.lookup, threads=bounds.resolver_threads, waiting=bounds.dns_queries + bounds.connections
        )

    def close(self) -> None:
        """Resolve no more names."""
        self._resolver.close()

    def open(self, host: Host, port: int, *, tunnel: bool) -> Steps[Link]:
        """Connect to a target; Denied, or UnreachableError."""
        deadline = time.monotonic() + self._bounds.connect_seconds
        try:
            return (yield from self._open(host, port, deadline, tunnel=tunnel))
        except TimedOut:
            raise UnreachableError(f"{format_authority(host, port)} did not answer in time") from None
        except UnresolvedError as error:
            raise UnreachableError(str(error)) from error

    def _open(self, host: Host, port: int, deadline: float, *, tunnel: bool) -> Steps[Link]:
        rule = self._rule_of(host, port) if isinstance(host, str) else None
        proxy = self._outside.upstream.proxy_for(host, port, tunnel=tunnel)
        if not isinstance(host, str):
            self._check_address(host, host, port, None)
        if proxy is not None:
            # It resolves the name by itself, so the address cannot be checked here.
            return (yield from self._open_through(proxy, host, port, deadline, tunnel=tunnel))
        if isinstance(host, str):
            addresses = yield from self.allowed_addresses(host, port, rule, deadline)
        else:
            addresses = [host]
        return Link(stream=(yield from self._connect(addresses, port, deadline)))

    def _rule_of(self, name: str, port: int) -> NameRule:
        rule = self._policy.rule_of_name(name, port)
        if rule is None:
            raise Denied(name, port, "it is not in the policy", allow=format_authority(name, port))
        return rule

    def allowed_addresses(self, name: str, port: int, rule: NameRule | None, deadline: float) -> Steps[list[Address]]:
        """The addresses of a name that may be reached; Denied if it has others only."""
        denied: Denied | None = None
        allowed = []
        for address in (yield from self._resolver.addresses(name, deadline)):
            try:
                self._check_address(name, address, port, rule)
            except Denied as error:
                denied = denied or error
            else:
                allowed.append(address)
        if not allowed and denied is not None:
            raise denied
        return allowed

    def _check_address(self, host: Host, address: Address, port: int, rule: NameRule | None) -> None:
        why = self._policy.refusal(address, port, by_name=rule, own_ports=self._outside.own_ports, is_own=is_own)
        if why is None:
            return
        where = why if host == address else f"it resolves to {address}: {why}"
        raise Denied(host, port, where, address=address, allow=format_authority(address, port))

    def _open_through(self, proxy: Proxy, host: Host, port: int, deadline: float, *, tunnel: bool) -> Steps[Link]:
        if isinstance(proxy.host, str):
            addresses = yield from self._resolver.addresses(proxy.host, deadline)
        else:
            addresses = [proxy.host]
        stream = yield from self._connect(addresses, proxy.port, deadline)
        if not tunnel:
            return Link(stream=stream, proxy=proxy)
        try:
            yield from self._ask_for_tunnel(stream, proxy, host, port, deadline)
        except BaseException:
            stream.close()
            raise
        return Link(stream=stream)

    def _ask_for_tunnel(self, stream: Stream, proxy: Proxy, host: Host, port: int, deadline: float) -> Steps[None]:
        try:
            yield from stream.send(connect_head(host, port, proxy), deadline)
            head = yield from read_head(stream, self._bounds, deadline)
        except (OSError, BadRequestError) as error:
            raise UnreachableError(f"the server's own proxy: {error}") from error
        status = head.partition(b"\r\n")[0].split(b" ")[1:2]
        if status != [b"200"]:
            answer = b" ".join(status).decode("latin-1") or "nothing"
            raise UnreachableError(f"the server's own proxy answers {answer} for {format_authority(host, port)}")

    def _connect(self, addresses: list[Address], port: int, deadline: float) -> Steps[Stream]:
        failure: Exception | None = None
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            now = time.monotonic()
            try:
                return (yield from self._connect_to(address, port, now + max(deadline - now, 0) / left))
            except (OSError, TimedOut) as error:
                failure = error
        if isinstance(failure, TimedOut):
            raise failure
        why = getattr(failure, "strerror", None) or "it has no address"
        raise UnreachableError(f"{', '.join(format_authority(each, port) for each in addresses)}: {why}")

    def _connect_to(self, address: Address, port: int, deadline: float) -> Steps[Stream]:
        family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
        connecting = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = Stream(self._loop, connecting)
        except BaseException:
            connecting.close()
            raise
        try:
            error = connecting.connect_ex((str(address), port))
            while error in (errno.EINPROGRESS, errno.EALREADY):
                yield from self._loop.writable(connecting, deadline)
                error = _state(connecting)
        except BaseException:
            stream.close()
            raise
        if error:
            stream.close()
            raise OSError(error, os.strerror(error))
        return stream


def _state(connecting: socket.socket) -> int:
    """The error of a connection; EINPROGRESS while there is neither an error nor a peer."""
    if error := connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        return error
    try:
        connecting.getpeername()
    except OSError:
        return errno.EINPROGRESS
    return 0
