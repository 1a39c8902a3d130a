"""The service seen from outside: a real server process, asked over HTTP by programs on the same machine."""

from __future__ import annotations

from benchmarks.figures import Result, Size
from benchmarks.service import followers, idling, many_followers, requests
from benchmarks.service.serving import Server, bare_server, serving


def measure(size: Size) -> list[Result]:
    """Everything; the start-up and the idle time on servers of their own, the rest on one."""
    with serving() as server, bare_server() as bare:
        found = [*requests.measure(server, bare, size), *followers.measure(server, size)]
        found += many_followers.measure(server, size)
    return [*found, *idling.measure(size)]


__all__ = ["Server", "measure"]
