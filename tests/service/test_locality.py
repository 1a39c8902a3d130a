"""Requests of this machine, told from those that only look so."""

from __future__ import annotations

import pytest

from debug_server.service.locality import is_local


@pytest.mark.parametrize(
    ("peer", "host", "origin"),
    [
        ("127.0.0.1", "127.0.0.1:8000", None),
        ("127.0.0.9", "localhost", None),
        ("::1", "[::1]:8000", None),
        ("127.0.0.1", "LOCALHOST:1", "http://localhost:3000"),
        ("127.0.0.1", "localhost", "https://[::1]:5"),
    ],
)
def test_this_machine_is_local(peer: str, host: str, origin: str | None) -> None:
    """Loopback peers with loopback names are let in, with or without an Origin of this machine."""
    assert is_local(peer, host, origin)


@pytest.mark.parametrize(
    ("peer", "host", "origin"),
    [
        (None, "localhost", None),
        ("10.0.0.1", "localhost", None),
        ("127.0.0.1", None, None),
        ("127.0.0.1", "", None),
        ("127.0.0.1", "evil.example:8000", None),
        ("127.0.0.1", "localhost.evil.example", None),
        ("127.0.0.1", "127.0.0.1@evil.example", None),
        ("127.0.0.1", "localhost", "https://evil.example"),
        ("127.0.0.1", "localhost", "null"),
        ("127.0.0.1", "[::1", None),
    ],
)
def test_a_web_page_is_not_local(peer: str | None, host: str | None, origin: str | None) -> None:
    """Another machine, a rebound name and a foreign or hidden Origin are strangers."""
    assert not is_local(peer, host, origin)


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "via"])
def test_a_proxy_of_this_machine_speaks_for_others(header: str) -> None:
    """A proxy's address and Host are this machine's; whom it speaks for is not, and without a token gets nothing."""
    assert is_local("127.0.0.1", "127.0.0.1:8000", None, ["accept", "user-agent"])
    assert not is_local("127.0.0.1", "127.0.0.1:8000", None, ["accept", header])
