"""The limits of one proxy: what a hostile command may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Numbers of things, bytes and seconds."""

    connections: int = 256  # at one time
    head_bytes: int = 1 << 16  # the head of a request or of an answer
    head_seconds: float = 30.0
    hello_bytes: int = 1 << 15  # a TLS ClientHello
    hello_seconds: float = 20.0
    connect_seconds: float = 30.0  # to resolve a name and to connect
    idle_seconds: float = 900.0  # without a byte in either direction
    dns_connections: int = 16
    dns_queries: int = 32  # in flight
    dns_seconds: float = 10.0
    resolver_threads: int = 4
    pipes: int = 16  # of a megabyte, for connections that move much
    reports: int = 20  # at once; then one a second, with counts
    report_kinds: int = 256  # different denials that are counted apart
