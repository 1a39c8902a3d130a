"""Requests that their peer sent itself, told from those that only look so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from debug_server.service.request_origin import RequestOrigin, is_direct, is_loopback


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


def _sender(
    host: str | None, origin: str | None = None, scheme: str = "http", site: str | None = None
) -> RequestOrigin:
    return RequestOrigin(scheme=scheme, host=host, origin=origin, site=site)


@pytest.mark.parametrize(
    "sender",
    [
        _sender("127.0.0.1:8000"),
        _sender("localhost"),
        _sender("[::1]:8000"),
        _sender("LOCALHOST:1", "http://localhost:1", site="same-origin"),
        _sender("localhost", "http://localhost:80"),
        _sender("[::1]:5", "https://[::1]:5", scheme="wss"),
        _sender("localhost:5", "http://localhost:5", scheme="ws"),
        _sender("localhost", site="none"),
    ],
)
def test_a_program_of_this_machine_is_direct(sender: RequestOrigin) -> None:
    """Loopback names are accepted, without an Origin or with the one that is asked."""
    assert is_direct(sender)


@pytest.mark.parametrize(
    "sender",
    [
        _sender(None),
        _sender(""),
        _sender("evil.example:8000"),
        _sender("localhost.evil.example"),
        _sender("127.0.0.1@evil.example"),
        _sender("localhost", "https://evil.example"),
        _sender("localhost", "null"),
        _sender("[::1"),
        _sender("localhost:8000", "http://localhost:9999"),
        _sender("localhost:8000", "http://127.0.0.1:8000"),
        _sender("localhost:8000", "https://localhost:8000"),
        _sender("localhost:8000", "http://[::1"),
        _sender("localhost:8000", site="cross-site"),
        _sender("localhost:8000", site="same-site"),
    ],
)
def test_a_web_page_is_not_direct(sender: RequestOrigin) -> None:
    """A rebound name and another, or hidden, Origin are refused; another port of this machine is another's page."""
    assert not is_direct(sender)


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "via"])
def test_a_proxy_of_this_machine_speaks_for_others(header: str) -> None:
    """A proxy's Host is this machine's; whom it speaks for is not, and without a token gets nothing."""
    sender = _sender("127.0.0.1:8000")
    assert is_direct(replace(sender, headers=["accept", "user-agent"]))
    assert not is_direct(replace(sender, headers=["accept", header]))
