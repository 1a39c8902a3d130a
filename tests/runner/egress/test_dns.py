"""DNS for the command: names of the policy and no others, by UDP and TCP, whatever is sent."""

from __future__ import annotations

import socket
import struct
import threading
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.dns import QueryError, parse_query
from debug_server.runner.egress.names import Address
from tests.runner.egress.support import SECONDS, Running, proxy
from tests.running import eventually

A, AAAA, TXT, HTTPS = 1, 28, 16, 65
OK, MALFORMED, FAILED, NO_NAME, NOT_IMPLEMENTED = 0, 1, 2, 3, 4


def query(name: str, kind: int = A, *, number: int = 7, group: int = 1) -> bytes:
    """A question, as stub resolvers send it."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label)
    return struct.pack("!HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, group)


def ask_udp(running: Running, message: bytes) -> bytes:
    """The answer; asks again if a datagram was lost."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(SECONDS)
        client.sendto(message, running.dns)
        return client.recv(4096)


def ask_tcp(running: Running, *messages: bytes) -> list[bytes]:
    """The answers, by one connection."""
    with socket.create_connection(running.dns_by_tcp, timeout=SECONDS) as client:
        answers = []
        for message in messages:
            client.sendall(len(message).to_bytes(2, "big") + message)
            answers.append(_read(client, int.from_bytes(_read(client, 2), "big")))
        return answers


def _read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def result(answer: bytes, question: bytes) -> tuple[int, list[str]]:
    """The code of an answer, and its addresses."""
    number, flags, questions, answers, _, _ = struct.unpack_from("!HHHHHH", answer)
    assert number == 7
    assert flags & 0x8000
    assert questions == 1
    assert answer[12 : len(question)] == question[12:]
    at, found = len(question), []
    for _ in range(answers):
        pointer, _, group, _, length = struct.unpack_from("!HHHIH", answer, at)
        assert (pointer, group) == (0xC00C, 1)
        data = answer[at + 12 : at + 12 + length]
        found.append(str(IPv4Address(data) if length == 4 else IPv6Address(data)))
        at += 12 + length
    assert at == len(answer)
    return flags & 15, found


NAMES = {
    "good.test": ["192.0.2.1", "2001:db8::1", "10.0.0.1"],
    "private.test": ["10.0.0.1"],
    "a.wild.test": ["8.8.8.8"],
}


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("good.test", A, (OK, ["192.0.2.1"])),
        ("GooD.tEst", A, (OK, ["192.0.2.1"])),
        ("good.test", AAAA, (OK, ["2001:db8::1"])),
        ("good.test", TXT, (OK, [])),
        ("good.test", HTTPS, (OK, [])),
        ("a.wild.test", A, (OK, ["8.8.8.8"])),
        ("b.wild.test", A, (FAILED, [])),
        ("wild.test", A, (NO_NAME, [])),
        ("evil.test", A, (NO_NAME, [])),
        ("secret-data.good.test", A, (NO_NAME, [])),
        ("evil.test", TXT, (NO_NAME, [])),
        ("private.test", A, (NO_NAME, [])),
        ("127.0.0.1", A, (NO_NAME, [])),
        ("", A, (NO_NAME, [])),
    ],
)
def test_names_of_the_policy_have_addresses(name: str, kind: int, expected: tuple[int, list[str]]) -> None:
    """An answer has the allowed addresses of an allowed name; by TCP it is the same."""
    lines = ("good.test:443", "*.wild.test:80", "private.test:1")
    with proxy(*lines, names=NAMES) as running:
        question = query(name, kind)
        assert result(ask_udp(running, question), question) == expected
        assert [result(answer, question) for answer in ask_tcp(running, question, question)] == [expected] * 2


def test_no_other_name_reaches_the_resolver() -> None:
    """What a tunnel would carry in names, types or classes goes nowhere, and is reported."""
    asked: list[str] = []

    def lookup(name: str) -> list[Address]:
        asked.append(name)
        return [ip_address("192.0.2.1")]

    with proxy("good.test:443", lookup=lookup) as running:
        for name in ("c2VjcmV0.evil.test", "x.good.test", "good.test.evil.test", "goodtest", "test"):
            for kind in (A, AAAA, TXT, 10, 255):
                question = query(name, kind)
                assert result(ask_udp(running, question), question)[0] == NO_NAME
        question = query("good.test", A, group=3)
        assert result(ask_udp(running, question), question) == (OK, [])
        assert asked == []
        assert ("x.good.test", 53) in running.denied()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (query("good.test")[:-1], MALFORMED),
        (query("good.test")[:12], MALFORMED),
        (b"\0\7\x01\0\0\0\0\0\0\0\0\0", MALFORMED),
        (b"\0\7\x01\0\0\2\0\0\0\0\0\0" + query("good.test")[12:] * 2, MALFORMED),
        (b"\0\7\x01\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1", MALFORMED),
        (b"\0\7\x01\0\0\1\0\0\0\0\0\0\x3fgood", MALFORMED),
        (b"\0\7\x28\0\0\1\0\0\0\0\0\0" + query("good.test")[12:], NOT_IMPLEMENTED),
    ],
)
def test_a_malformed_message_is_answered_so(message: bytes, code: int) -> None:
    """Two questions, pointers, updates and cut messages are refused."""
    with proxy("good.test:443", names=NAMES) as running:
        assert ask_udp(running, message)[3] & 15 == code


def test_answers_and_rubbish_get_no_answer() -> None:
    """A message that is itself an answer, or too short, is dropped; the next question is answered."""
    with (
        proxy("good.test:443", names=NAMES) as running,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        client.settimeout(SECONDS)
        for message in (b"", b"x", bytes(11), b"\0\7\x81\0" + query("good.test")[4:]):
            client.sendto(message, running.dns)
        question = query("good.test")
        client.sendto(question, running.dns)
        assert result(client.recv(4096), question) == (OK, ["192.0.2.1"])
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(4096)


def test_slow_lookups_do_not_keep_others_waiting() -> None:
    """A name whose lookup hangs costs its own questions; their number is bounded, and the end waits for none."""
    release = threading.Event()

    def lookup(name: str) -> list[Address]:
        if name.startswith("slow"):
            release.wait()
        return [ip_address("192.0.2.1")]

    bounds = Bounds(dns_queries=3, resolver_threads=4)
    with (
        proxy("*.slow.test:443", "good.test:443", lookup=lookup, bounds=bounds) as running,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        client.settimeout(SECONDS)
        for number in range(2):
            client.sendto(query(f"slow{number}.slow.test"), running.dns)
        question = query("good.test")
        client.sendto(question, running.dns)
        assert result(client.recv(4096), question) == (OK, ["192.0.2.1"])
        question = query("slow2.slow.test")
        client.sendto(question, running.dns)
        client.sendto(query("good.test"), running.dns)
        assert result(client.recv(4096), query("good.test"))[0] == FAILED
    release.set()


def test_many_addresses_fit_into_a_datagram() -> None:
    """More than 512 bytes of addresses are cut, so that the answer needs no second question by TCP."""
    many = [f"192.0.2.{number}" for number in range(1, 200)] + [f"2001:db8::{number:x}" for number in range(1, 200)]
    with proxy("good.test:443", names={"good.test": many}) as running:
        for kind, most in ((A, 14), (AAAA, 8)):
            question = query("good.test", kind)
            answer = ask_udp(running, question)
            assert len(answer) <= 512
            assert len(result(answer, question)[1]) == most


def test_idle_tcp_connections_are_bounded() -> None:
    """Connections beyond the limit are closed; UDP still answers."""
    with proxy("good.test:443", names=NAMES, bounds=Bounds(dns_connections=2)) as running:
        clients = [socket.create_connection(running.dns_by_tcp, timeout=SECONDS) for _ in range(6)]
        eventually(lambda: sum(_is_closed(client) for client in clients) == 4)
        question = query("good.test")
        assert result(ask_udp(running, question), question)[0] == OK
        for client in clients:
            client.close()


def test_given_back_connections_are_used() -> None:
    """A limit on connections at one time is none on their number."""
    with proxy("good.test:443", names=NAMES, bounds=Bounds(dns_connections=1)) as running:
        question = query("good.test")

        def answered() -> bool:
            try:
                return result(ask_tcp(running, question)[0], question)[0] == OK
            except (EOFError, ConnectionError):
                return False  # the one before is not given back yet

        for _ in range(5):
            eventually(answered)


def _is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@given(st.binary(max_size=100))
def test_garbage_is_no_query(garbage: bytes) -> None:
    """Any bytes are a query or refused, never an error of ours."""
    for message in (garbage, query("good.test")[:12] + garbage):
        try:
            parse_query(message)
        except QueryError:
            continue
