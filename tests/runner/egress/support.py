"""A proxy for one test, servers that it may reach, and clients that say exactly what they are told."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from debug_server.runner.egress import policy
from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.dialer import Outside
from debug_server.runner.egress.names import Address
from debug_server.runner.egress.resolver import UnresolvedError
from debug_server.runner.egress.serve import serve
from debug_server.runner.egress.upstream import Upstream

SECONDS = 100.0  # a wait that takes this long has failed
Names = Mapping[str, Iterable[str]]


def lookup_in(names: Names) -> Callable[[str], list[Address]]:
    """A resolver that knows these names."""

    def lookup(name: str) -> list[Address]:
        if name not in names:
            raise UnresolvedError(f"{name} has no address")
        return [ip_address(text) for text in names[name]]

    return lookup


@dataclass
class Running:
    """A proxy that runs in a thread."""

    port: int
    dns: tuple[str, int]
    dns_by_tcp: tuple[str, int]
    events: list[dict[str, Any]] = field(default_factory=list)

    def connect(self) -> socket.socket:
        """A connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def ask(self, *pieces: bytes) -> bytes:
        """Send these bytes; everything that comes back up to the end of the connection."""
        with self.connect() as client:
            for piece in pieces:
                client.sendall(piece)
            return read_all(client)

    def tunnel(self, target: str) -> socket.socket:
        """A connection through which a tunnel to ``target`` is open."""
        client = self.connect()
        client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        answer = read_head(client)
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return client

    def denied(self) -> list[tuple[Any, ...]]:
        """Host and port of each denial that was reported."""
        return [(event["host"], event["port"]) for event in self.events if event["event"] == "egress_denied"]


def read_head(client: socket.socket) -> bytes:
    """The bytes up to the first empty line, and none after it."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        byte = client.recv(1)
        if not byte:
            return data
        data += byte
    return data


def read_all(client: socket.socket) -> bytes:
    """Everything up to the end; a reset is an end, too."""
    data = b""
    while True:
        try:
            piece = client.recv(1 << 16)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


@contextmanager
def proxy(
    *lines: str,
    indexes: Iterable[str] = (),
    names: Names | None = None,
    own_ports: Iterable[int] = (),
    upstream: Upstream | None = None,
    bounds: Bounds | None = None,
    lookup: Callable[[str], list[Address]] | None = None,
) -> Iterator[Running]:
    """A proxy with this policy on loopback. It must end by itself once its control pipe is closed."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    listeners = [listen(), udp, listen()]
    addresses = [each.getsockname() for each in listeners]
    running = Running(port=addresses[0][1], dns=addresses[1], dns_by_tcp=addresses[2])
    control, ours = os.pipe()
    outside = Outside(
        own_ports=frozenset(own_ports),
        upstream=upstream or Upstream(),
        lookup=lookup or lookup_in(names or {}),
    )
    chosen = policy.parse(lines, indexes=indexes)
    thread = threading.Thread(
        target=serve,
        args=(listeners[0], listeners[1:], chosen, running.events.append, control),
        kwargs={"outside": outside, "bounds": bounds},
        daemon=True,
    )
    thread.start()
    try:
        yield running
    finally:
        os.close(ours)
        thread.join(SECONDS)
        assert not thread.is_alive(), "the proxy did not end"
        os.close(control)
        for each in listeners:
            each.close()
    assert [event for event in running.events if event["event"] == "egress_failed"] == []


def listen() -> socket.socket:
    """A TCP listener on loopback."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    return listener


TUNNEL = b"HTTP/1.1 200 OK\r\n\r\n"  # as a server that is an upstream proxy


class Server:
    """Keeps what each connection sent. Answers, if it has an ``answer``, once it got ``until``; else echoes."""

    def __init__(self, answer: bytes | None = None, *, until: bytes = b"\r\n\r\n") -> None:
        self._answer, self._until = answer, until
        self._listener = listen()
        self.port: int = self._listener.getsockname()[1]
        self.received: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.settimeout(SECONDS)
            seen = bytearray()
            self.received.append(seen)
            threading.Thread(target=self._serve, args=(client, seen), daemon=True).start()

    def _serve(self, client: socket.socket, seen: bytearray) -> None:
        with client:
            try:
                while piece := client.recv(1 << 16):
                    seen += piece
                    if self._answer is None:
                        client.sendall(piece)
                    elif self._until in seen:
                        client.sendall(self._answer)
                        if self._answer != TUNNEL:
                            client.shutdown(socket.SHUT_WR)
                        while more := client.recv(1 << 16):
                            seen += more
                        return
            except OSError:
                return

    def close(self) -> None:
        """Listen no longer."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"


@contextmanager
def reachable(answer: bytes | None = None, *, until: bytes = b"\r\n\r\n") -> Iterator[tuple[Running, Server]]:
    """A server and a proxy whose policy names it, as ``good.test``."""
    with Server(answer, until=until) as server:
        lines = (f"good.test:{server.port}", f"127.0.0.1:{server.port}")
        with proxy(*lines, names={"good.test": ["127.0.0.1"]}) as running:
            yield running, server


def client_hello(name: str | None) -> bytes:
    """What OpenSSL sends first to a server of this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without an answer")


def in_records(hello: bytes, size: int) -> bytes:
    """The same ClientHello, in TLS records of ``size`` bytes."""
    body = hello[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(hello[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def get(url: str, *, host: str | None = None, more: str = "") -> bytes:
    """A GET to a proxy."""
    authority = url.partition("://")[2].partition("/")[0]
    return f"GET {url} HTTP/1.1\r\nHost: {authority if host is None else host}\r\n{more}\r\n".encode("latin-1")
