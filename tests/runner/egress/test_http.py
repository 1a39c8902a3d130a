"""Plain HTTP through the proxy: what is forwarded, and what is refused before a byte of it leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_server.runner.egress.names import HostError, parse_host
from debug_server.runner.egress.request import BadRequestError, parse_request
from tests.runner.egress.support import OK, Server, get, proxy, reachable


def test_a_request_is_forwarded_and_its_connection_ends() -> None:
    """The server sees the path and one Host header; the client is told that the connection ends with the answer."""
    with reachable(OK) as (running, server):
        answer = running.ask(get(f"http://GOOD.test.:{server.port}/a/b?c=d"))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\nConnection: close\r\n\r\nok")
        assert b"keep-alive" not in answer
        head = bytes(server.received[0])
        assert head.startswith(f"GET /a/b?c=d HTTP/1.1\r\nHost: good.test:{server.port}\r\n".encode())
        assert head.count(b"Host:") == 1
        assert running.events == []


def test_what_is_for_the_proxy_alone_is_not_forwarded() -> None:
    """Proxy-* and hop-by-hop headers stay here, also those that Connection names; the others pass unchanged."""
    more = (
        "Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nConnection: x-mine, keep-alive\r\n"
        "X-Mine: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nTE: trailers\r\nAccept: a,  b\r\nX-Latin: \xe4\r\n"
    )
    with reachable(OK) as (running, server):
        assert running.ask(get(f"http://good.test:{server.port}/", more=more)).endswith(b"ok")
        head = bytes(server.received[0]).lower()
    for name in (b"proxy-", b"x-mine", b"keep-alive", b"upgrade", b"te:"):
        assert name not in head
    assert b"\r\naccept: a,  b\r\n" in head
    assert b"\r\nx-latin: \xe4\r\n" in head


FRAMED = {
    "length": ((b"Content-Length: 5\r\n\r\nhel", b"lo"), b"\r\n\r\nhello"),
    "chunks": (
        (b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhe", b"llo\r\n6\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n"),
        b"\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    ),
}


@pytest.mark.parametrize(("pieces", "arrives"), FRAMED.values(), ids=FRAMED)
def test_bodies_arrive(pieces: tuple[bytes, ...], arrives: bytes) -> None:
    """With a length, and in chunks; chunk extensions and trailers are dropped."""
    with reachable(OK, until=arrives) as (running, server):
        head = f"POST http://good.test:{server.port}/ HTTP/1.1\r\nHost: good.test:{server.port}\r\n"
        assert running.ask(head.encode() + pieces[0], *pieces[1:]).endswith(b"ok")
        assert server.received[0].endswith(arrives)


def test_a_target_outside_the_policy_is_refused_with_the_line_that_would_allow_it() -> None:
    """403 with the line, and one event with host, port and peer; the name is not even resolved."""

    def never(name: str) -> list[object]:
        raise AssertionError(name)

    with proxy("good.test:80", lookup=never) as running:  # type: ignore[arg-type]
        answer = running.ask(get("http://evil.test/x"))
        assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
        assert b'network.allow = ["evil.test:80"]' in answer
        (event,) = running.events
    assert event["peer"].startswith("127.0.0.1:")
    expected = {"event": "egress_denied", "host": "evil.test", "port": 80, "address": None, "count": 1}
    assert expected.items() <= event.items()
    assert "not in the policy" in event["why"]


def test_another_port_of_an_allowed_host_is_refused() -> None:
    """A rule is about one port."""
    with reachable(OK) as (running, server):
        assert b" 403 " in running.ask(get("http://good.test:1/"))
        assert b" 403 " in running.ask(get("http://127.0.0.1:1/"))
        assert server.received == []


def test_a_name_of_a_private_address_is_refused() -> None:
    """The answer names the address, and the line that would allow just this address."""
    with proxy("good.test:80", names={"good.test": ["10.0.0.7"]}) as running:
        answer = running.ask(get("http://good.test/"))
        assert b" 403 " in answer
        assert b'network.allow = ["10.0.0.7:80"]' in answer
        assert running.events[0]["address"] == "10.0.0.7"


def test_a_resolver_that_changes_its_answer_gains_nothing() -> None:
    """Each request resolves the name once, and connects to the very address that was checked."""
    asked: list[str] = []
    with Server(OK) as server:
        answers = [["127.0.0.1"], ["169.254.169.254"], ["127.0.0.1", "10.0.0.1"], ["::ffff:127.0.0.1"]]

        def lookup(name: str) -> list[object]:
            from ipaddress import ip_address

            asked.append(name)
            return [ip_address(text) for text in answers[len(asked) - 1]]

        lines = (f"good.test:{server.port}", f"127.0.0.1:{server.port}")
        with proxy(*lines, lookup=lookup) as running:  # type: ignore[arg-type]
            statuses = [running.ask(get(f"http://good.test:{server.port}/"))[9:12] for _ in answers]
        assert statuses == [b"200", b"403", b"200", b"403"]
        assert len(asked) == 4
        assert len(server.received) == 2


def test_a_redirect_to_another_host_is_a_new_request() -> None:
    """The redirect itself passes; following it is checked like anything else."""
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://evil.test/\r\nContent-Length: 0\r\n\r\n"
    with reachable(moved) as (running, server):
        assert b"Location: http://evil.test/" in running.ask(get(f"http://good.test:{server.port}/"))
        assert b" 403 " in running.ask(get("http://evil.test/"))


@pytest.mark.parametrize("host", ["evil.test", "good.test:81", "good.test@evil.test", "", "good.test, evil.test"])
def test_another_host_header_is_refused(host: str) -> None:
    """The Host header must be about the target, or a shared server would answer for another site."""
    with reachable(OK) as (running, server):
        answer = running.ask(get(f"http://good.test:{server.port}/", host=host))
        assert answer[9:12] in (b"400", b"403")
        assert server.received == [] or bytes(server.received[0]) == b""


HEAD = b"POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\n"
REFUSED = {
    "no proxy request": b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "another scheme": b"GET https://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "ftp": b"GET ftp://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "user name": b"GET http://user:pw@good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "user name that looks like the host": b"GET http://good.test@evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "backslash": b"GET http://good.test\\@evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "fragment": b"GET http://good.test/#@evil.test HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "no host": b"GET http:///x HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "escaped host": b"GET http://good%2etest/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "no Host header": b"GET http://good.test/ HTTP/1.1\r\n\r\n",
    "two Host headers": b"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nHost: good.test\r\n\r\n",
    "space before the colon": HEAD + b"Content-Length : 5\r\n\r\nhello",
    "folded header": HEAD + b"X: a\r\n b\r\n\r\n",
    "bare line feed": HEAD + b"X: a\nY: b\r\n\r\n",
    "bare carriage return": HEAD + b"X: a\rTransfer-Encoding: chunked\r\n\r\n",
    "NUL": HEAD + b"X: a\0b\r\n\r\n",
    "no name": HEAD + b": a\r\n\r\n",
    "line feed in the URL": b"GET http://good.test/\n HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "space in the URL": b"GET http://good.test/a b HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET http://good.test/\r\n\r\n",
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "two equal lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "list of lengths": HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
    "signed length": HEAD + b"Content-Length: +5\r\n\r\nhello",
    "hexadecimal length": HEAD + b"Content-Length: 0x5\r\n\r\nhello",
    "empty length": HEAD + b"Content-Length:\r\n\r\n",
    "huge length": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
    "other coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "coding that hides": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n",
    "two codings": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
    "chunks in HTTP/1.0": HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "vertical tab in a coding": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n",
    "CONNECT with a path": b"CONNECT good.test:443/x HTTP/1.1\r\n\r\n",
    "CONNECT without a port": b"CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "CONNECT with another Host": b"CONNECT good.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
    "CONNECT with a body": b"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\nContent-Length: 1\r\n\r\nx",
    "CONNECT to a URL": b"CONNECT http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", REFUSED.values(), ids=REFUSED)
def test_what_two_parsers_could_read_in_two_ways_is_refused(request_bytes: bytes) -> None:
    """400 or 403 before any name is resolved."""
    with proxy("good.test:80", "good.test:443", names={"good.test": ["192.0.2.1"]}) as running:
        answer = running.ask(request_bytes)
    assert answer[9:12] in (b"400", b"403"), answer
    with pytest.raises(BadRequestError):
        parse_request(request_bytes[: request_bytes.index(b"\r\n\r\n") + 4])


@pytest.mark.parametrize(
    "host",
    ["2130706433", "017700000001", "0177.0.0.1", "0x7f000001", "0x7f.1", "127.1", "127.0.1", "0", "1.2.3.4.5", "0x"],
)
def test_an_address_in_a_strange_form_is_no_name(host: str) -> None:
    """Decimal, octal, hexadecimal and short forms are refused, although the host's resolver would take them."""
    with pytest.raises(HostError):
        parse_host(host)
    with proxy(f"127.0.0.1:{80}", "0.0.0.0/0:80") as running:
        assert b" 400 " in running.ask(get(f"http://{host}/"))


@pytest.mark.parametrize("host", ["[::1]", "[::ffff:127.0.0.1]", "[0:0:0:0:0:ffff:7f00:1]", "[fe80::1%25lo]", "[::1"])
def test_an_ipv6_form_of_a_forbidden_address_is_refused(host: str) -> None:
    """In whatever form it is written."""
    with proxy("127.0.0.1:80", "[::/0]:80") as running:
        assert running.ask(get(f"http://{host}/"))[9:12] in (b"400", b"403")


def test_a_second_request_goes_nowhere() -> None:
    """What follows the first request on a connection, pipelined or smuggled behind it, is never forwarded."""
    with reachable(OK) as (running, server):
        first = f"POST http://good.test:{server.port}/1 HTTP/1.1\r\nHost: good.test:{server.port}\r\n"
        second = get(f"http://good.test:{server.port}/2") + get("http://evil.test/")
        for framing in (b"Content-Length: 0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
            answer = running.ask(first.encode() + framing + second)
            assert answer.count(b"HTTP/1.1 ") <= 1  # a reset may destroy it: the client broke the rules
        assert len(server.received) == 2
        for seen in server.received:
            assert b"/2" not in seen
            assert b"evil" not in seen


def test_a_broken_chunk_ends_the_request() -> None:
    """A chunk that is longer or shorter than it says is refused, and nothing behind it is forwarded."""
    with reachable() as (running, server):  # it never answers a request
        head = f"POST http://good.test:{server.port}/ HTTP/1.1\r\nHost: good.test:{server.port}\r\n"
        for body in (b"3\r\nhello\r\n0\r\n\r\n", b"g\r\n", b"-1\r\n", b"5\nhello\r\n", b"fffffffffffffffff\r\n"):
            with running.connect() as client:
                client.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + body)
                assert b" 200 " not in client.recv(4096)
        assert all(b"lo\r\n" not in seen for seen in server.received)


def test_no_header_is_injected_by_the_url() -> None:
    """A line end can be neither in the URL nor in a header, so no header comes of it."""
    with reachable(OK) as (running, server):
        target = f"http://good.test:{server.port}/%0d%0aX-Evil:%201"
        assert running.ask(get(target)).endswith(b"ok")
        assert b"\r\nX-Evil" not in server.received[0]
        for end in ("\r", "\n", "\x85", "\x0b"):
            assert b" 400 " in running.ask(get(f"http://good.test:{server.port}/{end}X-Evil: 1"))


def test_an_unreachable_server_is_told_apart_from_a_denial() -> None:
    """502 with the reason, and no event."""
    with Server() as server:
        port = server.port
    with proxy("nowhere.test:80", f"127.0.0.1:{port}") as running:
        assert b" 502 " in running.ask(get("http://nowhere.test/"))
        answer = running.ask(get(f"http://127.0.0.1:{port}/"))
        assert b" 502 " in answer
        assert b"refused" in answer
        assert running.events == []


def test_a_server_without_http_is_502() -> None:
    """An answer that is no HTTP/1 is not passed on."""
    for wrong in (b"SSH-2.0-x\r\n\r\n", b"", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"):
        with reachable(wrong) as (running, server):
            assert b" 502 " in running.ask(get(f"http://good.test:{server.port}/"))


def test_interim_answers_pass() -> None:
    """100 Continue comes before the answer."""
    with reachable(b"HTTP/1.1 100 Continue\r\n\r\n" + OK) as (running, server):
        answer = running.ask(get(f"http://good.test:{server.port}/"))
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


@given(st.binary(max_size=200))
def test_garbage_is_a_bad_request(garbage: bytes) -> None:
    """Any bytes are either a request or refused, never an error of ours."""
    for head in (garbage, b"GET http://good.test/" + garbage + b"\r\n\r\n", HEAD + garbage + b"\r\n\r\n"):
        try:
            parse_request(head)
        except BadRequestError:
            continue
