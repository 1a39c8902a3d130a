"""Tunnels: what is inside must be for the host that the tunnel was opened for."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_server.runner.egress.hello import HelloError, server_name
from debug_server.runner.egress.names import parse_host
from debug_server.runner.egress.upstream import Proxy, Upstream
from tests.certificates import self_signed
from tests.runner.egress.support import (
    OK,
    SECONDS,
    TUNNEL,
    Server,
    client_hello,
    in_records,
    listen,
    proxy,
    reachable,
    read_all,
)
from tests.running import eventually

ALERT = b"\x15\x03\x03\x00\x02\x02\x31"


def behind(server: Server) -> Upstream:
    """Leads every tunnel to a server of the test, which lets it play port 443 of any host."""
    return Upstream(https=Proxy(host=parse_host("127.0.0.1"), port=server.port))


def test_bytes_go_both_ways_and_each_way_ends_by_itself() -> None:
    """A tunnel to a port that is not for TLS carries any protocol; the end of one direction leaves the other open."""
    with reachable() as (running, server), running.tunnel(f"good.test:{server.port}") as client:
        data = bytes(range(256)) * 40_000
        client.sendall(data[:1000])
        received = b""
        while len(received) < 1000:
            received += client.recv(1 << 16)
        client.sendall(b"the end")
        client.shutdown(socket.SHUT_WR)
        assert received + read_all(client) == data[:1000] + b"the end"


def test_much_data_arrives_unchanged() -> None:
    """Also what is moved by pipes in the kernel, with a client that reads late."""
    block = bytes(range(256)) * 4096
    with listen() as listener:
        port = listener.getsockname()[1]
        with proxy(f"127.0.0.1:{port}") as running, running.tunnel(f"127.0.0.1:{port}") as client:
            server, _ = listener.accept()
            with server:
                server.settimeout(0.2)
                sent = 0
                while True:  # until every buffer on the way is full
                    try:
                        sent += server.send(block[sent % len(block) :])
                    except TimeoutError:
                        break
                server.settimeout(SECONDS)
                server.shutdown(socket.SHUT_WR)
                received = read_all(client)
    assert len(received) == sent
    assert received == (block * (sent // len(block) + 1))[:sent]


@pytest.mark.parametrize("target", ["good.test:443", "GOOD.test.:443"])
@pytest.mark.parametrize("name", ["good.test", "GOOD.Test"])
def test_tls_for_the_host_of_the_tunnel_passes(target: str, name: str) -> None:
    """Case and the final dot of the name make no difference. The server gets the very bytes."""
    hello = client_hello(name)
    with Server(TUNNEL) as server, proxy("good.test:443", upstream=behind(server)) as running:
        with running.tunnel(target) as client:
            client.sendall(hello)
            eventually(lambda: server.received[0].endswith(hello))
        assert running.events == []


def test_a_name_outside_ascii_is_compared_in_its_ascii_form() -> None:
    """The policy has bücher.example, and the client sends xn--bcher-kva.example."""
    hello = client_hello("xn--bcher-kva.example")
    with (
        Server(TUNNEL) as server,
        proxy("bücher.example:443", upstream=behind(server)) as running,
        running.tunnel("xn--bcher-kva.example:443") as client,
    ):
        client.sendall(hello)
        eventually(lambda: server.received[0].endswith(hello))


PIECES = [(1, 7), (16, 1000), (1000, 1), (50, 50)]  # bytes of a record, bytes of a segment


@pytest.mark.parametrize(("record", "segment"), PIECES)
def test_the_right_name_in_pieces_passes(record: int, segment: int) -> None:
    """A ClientHello may be cut into many records and segments."""
    hello = in_records(client_hello("good.test"), record)
    with (
        Server(TUNNEL) as server,
        proxy("good.test:443", upstream=behind(server)) as running,
        running.tunnel("good.test:443") as client,
    ):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(hello), segment):
            client.sendall(hello[at : at + segment])
        eventually(lambda: server.received[0].endswith(hello))


@pytest.mark.parametrize(("record", "segment"), PIECES)
def test_another_name_in_pieces_is_refused(record: int, segment: int) -> None:
    """Cutting it hides nothing."""
    hello = in_records(client_hello("evil.test"), record)
    with Server(TUNNEL) as server, proxy("good.test:443", upstream=behind(server)) as running:
        with running.tunnel("good.test:443") as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for at in range(0, len(hello), segment):
                    client.sendall(hello[at : at + segment])
            assert read_all(client) in (ALERT, b"")
        eventually(lambda: running.denied() == [("good.test", 443)])
        assert bytes(server.received[0]).endswith(b"\r\n\r\n")  # CONNECT, and nothing after it


def test_a_name_may_begin_anywhere_and_nothing_passes_before_it() -> None:
    """Until the whole name is there, the server gets no byte."""
    hello = client_hello("good.test")
    with Server(TUNNEL) as server, proxy("good.test:443", upstream=behind(server)) as running:
        with running.tunnel("good.test:443") as client:
            before = len(server.received[0])
            client.sendall(hello[:-1])
            client.shutdown(socket.SHUT_WR)
            read_all(client)
        assert len(server.received[0]) == before


DENIED = {
    "another name": client_hello("evil.test"),
    "a name below": client_hello("a.good.test"),
    "no name": client_hello(None),
    "an address": client_hello("192.0.2.1"),
    "plain HTTP": b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "an alert first": b"\x15\x03\x01\x00\x02\x02\x28",
    "a ServerHello": b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
    "an empty record": b"\x16\x03\x01\x00\x00",
    "SSL 2": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",
    "a long record": b"\x16\x03\x01\xff\xff" + bytes(100),
    "a long hello": b"\x16\x03\x01\x00\x04\x01\xff\xff\xff" + bytes(40_000),
    "half of one": client_hello("good.test")[:40],
    "zeros": bytes(4096),
}


@pytest.mark.parametrize("first", DENIED.values(), ids=DENIED)
def test_nothing_else_passes_at_port_443(first: bytes) -> None:
    """Another name, none, another protocol: nothing of it leaves, the tunnel is closed and the denial reported."""
    with Server(TUNNEL) as server, proxy("good.test:443", upstream=behind(server)) as running:
        with running.tunnel("good.test:443") as client:
            before = bytes(server.received[0])
            client.sendall(first)
            client.shutdown(socket.SHUT_WR)
            answer = read_all(client)
        assert answer == (ALERT if first.startswith(b"\x16") else b"")
        eventually(lambda: running.denied() == [("good.test", 443)])
        assert bytes(server.received[0]) == before


def test_two_names_are_refused() -> None:
    """In one extension or in two: which one the server takes is not for us to guess."""

    def name(*texts: bytes) -> bytes:
        items = b"".join(b"\0" + len(text).to_bytes(2, "big") + text for text in texts)
        body = len(items).to_bytes(2, "big") + items
        return b"\0\0" + len(body).to_bytes(2, "big") + body

    def hello(*extensions: bytes) -> bytes:
        body = b"".join(extensions)
        return b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + len(body).to_bytes(2, "big") + body

    assert server_name(hello(name(b"good.test"))) == "good.test"
    assert server_name(hello()) is None
    for wrong in (
        hello(name(b"good.test", b"evil.test")),
        hello(name(b"good.test"), name(b"good.test")),
        hello(name(b"good.test")) + b"x",
        hello(name()),
        hello(name(b"g\xf6\xf6d.test")),
    ):
        with pytest.raises(HelloError):
            server_name(wrong)


@given(st.binary(max_size=300))
def test_garbage_is_no_hello(garbage: bytes) -> None:
    """Any bytes are a ClientHello or refused, never an error of ours."""
    for message in (garbage, b"\3\3" + bytes(32) + b"\0" + garbage, client_hello("good.test")[9:] + garbage):
        try:
            server_name(message)
        except HelloError:
            continue


def test_an_address_needs_no_name() -> None:
    """A tunnel to an address carries TLS without a name, or with that address; a name is another target."""
    with Server() as server, proxy(f"127.0.0.1:{server.port}") as running:
        for name, passes in ((None, True), ("127.0.0.1", True), ("evil.test", False)):
            hello = client_hello(name)
            with running.tunnel(f"127.0.0.1:{server.port}") as client:
                client.sendall(hello)
                client.shutdown(socket.SHUT_WR)
                assert read_all(client) == (hello if passes else ALERT)


def test_tls_is_checked_at_every_port() -> None:
    """Elsewhere than at 443 any protocol may pass, but TLS must be for the host of the tunnel."""
    with reachable() as (running, server):
        for name, passes in (("good.test", True), ("evil.test", False)):
            hello = client_hello(name)
            with running.tunnel(f"good.test:{server.port}") as client:
                client.sendall(hello)
                client.shutdown(socket.SHUT_WR)
                assert read_all(client) == (hello if passes else ALERT)


def test_a_server_may_speak_first() -> None:
    """Its greeting comes before the client has sent anything."""
    with listen() as listener:
        port = listener.getsockname()[1]
        with proxy(f"127.0.0.1:{port}") as running, running.tunnel(f"127.0.0.1:{port}") as client:
            server, _ = listener.accept()
            with server:
                server.sendall(b"220 hello\r\n")
                assert client.recv(100) == b"220 hello\r\n"


def test_plain_http_in_a_tunnel_to_port_80_is_checked() -> None:
    """Some clients open a tunnel for it; the Host header inside must be about that host."""
    with Server(TUNNEL) as server, proxy("good.test:80", upstream=behind(server)) as running:
        with running.tunnel("good.test:80") as client:
            client.sendall(b"GET /x HTTP/1.1\r\nHost: good.test\r\n\r\nGET /y HTTP/1.1\r\nHost: evil.test\r\n\r\n")
            eventually(lambda: b"GET /x HTTP/1.1\r\nHost: good.test\r\n" in server.received[0])
        for inside in (b"GET /x HTTP/1.1\r\nHost: evil.test\r\n\r\n", b"SSH-2.0-x\r\n\r\n", client_hello("good.test")):
            with running.tunnel("good.test:80") as client:
                client.sendall(inside)
                client.shutdown(socket.SHUT_WR)
                assert read_all(client)[9:12] in (b"400", b"403")
        assert all(b"evil" not in seen and b"/y" not in seen for seen in server.received)


def test_a_real_handshake_passes(tmp_path: Path) -> None:
    """A client that checks the certificate speaks to the server through the tunnel."""
    files = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    with listen() as listener:
        port = listener.getsockname()[1]
        with proxy(f"localhost:{port}", names={"localhost": ["127.0.0.1"]}) as running:
            raw = running.tunnel(f"localhost:{port}")
            server, _ = listener.accept()
            with server, raw:
                server.settimeout(SECONDS)
                trusting = ssl.create_default_context(cafile=str(files.cert))
                client, peer = _handshake(raw, server, trusting, context)
                with client, peer:
                    client.sendall(b"hello")
                    assert peer.recv(100) == b"hello"


def _handshake(
    raw: socket.socket, server: socket.socket, trusting: ssl.SSLContext, context: ssl.SSLContext
) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        ours = pool.submit(context.wrap_socket, server, server_side=True)
        client = trusting.wrap_socket(raw, server_hostname="localhost")
        return client, ours.result()


def test_a_denied_tunnel_is_answered_before_it_opens() -> None:
    """403 to CONNECT itself, with the line that would allow it."""
    with proxy("good.test:443") as running:
        answer = running.ask(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b'network.allow = ["evil.test:443"]' in answer


def test_an_upstream_proxy_gets_the_name_and_its_refusal_is_reported() -> None:
    """The operator's proxy is asked for the host by name, with its credentials; it may refuse."""
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
    with Server(refusal) as server:
        upstream = Upstream.from_environment({"HTTPS_PROXY": f"http://me:p%40ss@127.0.0.1:{server.port}"})
        with proxy("good.test:443", "evil.test:80", upstream=upstream) as running:
            answer = running.ask(b"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 502 ")
            assert b"407" in answer
            assert b"CONNECT good.test:443 HTTP/1.1\r\n" in server.received[0]
            assert b"\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n" in server.received[0]


def test_plain_requests_reach_an_upstream_proxy_in_absolute_form() -> None:
    """Checked first: what the policy lacks never reaches it."""
    with Server(OK) as server:
        upstream = Upstream.from_environment({"http_proxy": f"http://127.0.0.1:{server.port}", "NO_PROXY": "x.test"})
        with proxy("good.test:80", upstream=upstream) as running:
            answer = running.ask(b"GET http://good.test/a HTTP/1.1\r\nHost: good.test\r\n\r\n")
            assert answer.endswith(b"ok")
            assert server.received[0].startswith(b"GET http://good.test/a HTTP/1.1\r\nHost: good.test\r\n")
            assert b" 403 " in running.ask(b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
            assert b" 403 " in running.ask(b"GET http://10.0.0.1/ HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n")
            assert len(server.received) == 1
