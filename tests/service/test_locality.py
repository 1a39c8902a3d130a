"""Requests that their peer sent itself, told from those that only look so."""

from __future__ import annotations

import pytest

from debug_server.service.locality import is_direct, is_loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.9", "::1", "[::1]", "::ffff:127.0.0.1", "localhost", "LOCALHOST."]
)
def test_names_of_this_machine(host: str) -> None:
    """Loopback addresses of either family, also an IPv4 one written as IPv6, and localhost are this machine."""
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "::", "::ffff:10.0.0.1", "localhost.evil.example", "", "0.0.0.0"])
def test_names_of_others(host: str) -> None:
    """Any other address or name is not."""
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8000", None),
        ("localhost", None),
        ("[::1]:8000", None),
        ("LOCALHOST:1", "http://localhost:3000"),
        ("localhost", "https://[::1]:5"),
    ],
)
def test_a_program_of_this_machine_is_direct(host: str, origin: str | None) -> None:
    """Loopback names are accepted, with or without an Origin of this machine."""
    assert is_direct(host, origin)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (None, None),
        ("", None),
        ("evil.example:8000", None),
        ("localhost.evil.example", None),
        ("127.0.0.1@evil.example", None),
        ("localhost", "https://evil.example"),
        ("localhost", "null"),
        ("[::1", None),
    ],
)
def test_a_web_page_is_not_direct(host: str | None, origin: str | None) -> None:
    """A rebound name and a foreign or hidden Origin are refused."""
    assert not is_direct(host, origin)


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "via"])
def test_a_proxy_of_this_machine_speaks_for_others(header: str) -> None:
    """A proxy's Host is this machine's; whom it speaks for is not, and without a token gets nothing."""
    assert is_direct("127.0.0.1:8000", None, ["accept", "user-agent"])
    assert not is_direct("127.0.0.1:8000", None, ["accept", header])
