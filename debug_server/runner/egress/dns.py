"""DNS for the command: answers about names of the policy, and about no others, so no name carries data out."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from ipaddress import IPv4Address

from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.denials import Denials, Denied
from debug_server.runner.egress.dialer import Dialer
from debug_server.runner.egress.loop import Loop, TimedOut, sleep
from debug_server.runner.egress.names import Address, HostError, parse_host
from debug_server.runner.egress.policy import Policy
from debug_server.runner.egress.resolver import UnresolvedError
from debug_server.runner.egress.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from debug_server.runner.egress.loop import Steps

DNS_PORT = 53
_HEADER = struct.Struct("!HHHHHH")  # id, flags, questions, answers, authorities, additional
_QUESTION = struct.Struct("!HH")  # type, class
_ANSWER = struct.Struct("!HHHIH")  # pointer to the name, type, class, seconds, length
_POINTER = 0xC000 | _HEADER.size
_A, _AAAA, _IN = 1, 28, 1
_REPLY, _OPCODE, _WANTED, _RECURSIVE = 0x8000, 0x7800, 0x0100, 0x0080
_OK, _MALFORMED, _FAILED, _NO_NAME, _NOT_IMPLEMENTED = 0, 1, 2, 3, 4
_SECONDS = 30
_MOST = {_A: 14, _AAAA: 8}  # as many as surely fit into 512 bytes
_MAX_QUERY = 4096
_IDLE_SECONDS = 30.0
_ERROR_SECONDS = 0.5  # after too many open files, for example


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The one question of a message."""

    id: int
    flags: int
    name: str
    type: int
    question: bytes  # as it was sent

    def reply(self, code: int, addresses: list[Address] | None = None) -> bytes:
        """The answer to it."""
        found = addresses or []
        flags = _REPLY | (self.flags & (_OPCODE | _WANTED)) | _RECURSIVE | code
        message = _HEADER.pack(self.id, flags, 1, len(found), 0, 0) + self.question
        for address in found:
            message += _ANSWER.pack(_POINTER, self.type, _IN, _SECONDS, len(address.packed)) + address.packed
        return message


class QueryError(Exception):
    """A message is no query that is answered; ``reply`` says so, unless it is empty."""

    def __init__(self, reply: bytes = b"") -> None:
        super().__init__("not a query")
        self.reply = reply


def parse_query(data: bytes) -> Query:
    """The question of a message."""
    if len(data) < _HEADER.size:
        raise QueryError
    number, flags, questions, answers, authorities, _ = _HEADER.unpack_from(data)
    if flags & _REPLY:
        raise QueryError
    empty = _HEADER.pack(number, _REPLY | (flags & (_OPCODE | _WANTED)), 0, 0, 0, 0)
    if flags & _OPCODE:
        raise QueryError(_with_code(empty, _NOT_IMPLEMENTED))
    if questions != 1 or answers or authorities:
        raise QueryError(_with_code(empty, _MALFORMED))
    try:
        name, end = _name(data, _HEADER.size)
        kind, group = _QUESTION.unpack_from(data, end)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise QueryError(_with_code(empty, _MALFORMED)) from None
    question = data[_HEADER.size : end + _QUESTION.size]
    return Query(id=number, flags=flags, name=name, type=kind if group == _IN else 0, question=question)


def _with_code(message: bytes, code: int) -> bytes:
    return message[:3] + bytes([message[3] | code]) + message[4:]


def _name(data: bytes, at: int) -> tuple[str, int]:
    """A name without pointers, and where it ends."""
    labels = []
    while (length := data[at]) != 0:
        if length > 63 or at + 1 + length > len(data):
            raise IndexError
        labels.append(data[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    return ".".join(labels), at + 1


class Dns:
    """Answers by UDP and TCP, with a limit on the questions that are being resolved."""

    def __init__(self, loop: Loop, policy: Policy, dialer: Dialer, denials: Denials, bounds: Bounds) -> None:
        self._loop, self._policy, self._dialer, self._denials = loop, policy, dialer, denials
        self._bounds = bounds
        self._in_flight = 0
        self._connections = 0

    def serve(self, listener: socket.socket) -> None:
        """Start the task of one socket."""
        self._loop.watch(listener)
        is_udp = listener.type == socket.SOCK_DGRAM
        self._loop.start(self._serve_udp(listener) if is_udp else self._accept(listener))

    def _serve_udp(self, receiver: socket.socket) -> Steps[None]:
        handled = 0
        while True:
            try:
                data, peer = receiver.recvfrom(_MAX_QUERY)
            except BlockingIOError:
                yield from self._loop.readable(receiver, float("inf"))
                continue
            except OSError:
                yield from sleep(_ERROR_SECONDS)
                continue
            self._loop.start(self._answer_udp(receiver, data, peer))
            handled += 1
            if handled % 64 == 0:
                yield None

    def _answer_udp(self, receiver: socket.socket, data: bytes, peer: Any) -> Steps[None]:
        reply = yield from self._reply(data, f"{peer[0]}:{peer[1]}")
        try:
            if reply:
                receiver.sendto(reply, peer)
        except OSError:
            return  # as lossy as UDP is

    def _accept(self, listener: socket.socket) -> Steps[None]:
        while True:
            try:
                accepted, peer = listener.accept()
            except BlockingIOError:
                yield from self._loop.readable(listener, float("inf"))
                continue
            except OSError:
                yield from sleep(_ERROR_SECONDS)
                continue
            self._loop.start(self._serve_tcp(Stream(self._loop, accepted), f"{peer[0]}:{peer[1]}"))

    def _serve_tcp(self, client: Stream, peer: str) -> Steps[None]:
        self._connections += 1
        try:
            while self._connections <= self._bounds.dns_connections:
                deadline = time.monotonic() + _IDLE_SECONDS
                length = int.from_bytes((yield from _exactly(client, 2, deadline)), "big")
                reply = yield from self._reply((yield from _exactly(client, length, deadline)), peer)
                yield from client.send(len(reply).to_bytes(2, "big") + reply, deadline)
        except (EOFError, OSError, TimedOut):
            return
        finally:
            self._connections -= 1
            client.close()

    def _reply(self, data: bytes, peer: str) -> Steps[bytes]:
        try:
            query = parse_query(data)
        except QueryError as error:
            return error.reply
        try:
            name = parse_host(query.name)
        except HostError:
            name = None
        if not isinstance(name, str) or self._policy.rule_of_name(name) is None:
            self._deny(query.name, name, peer)
            return query.reply(_NO_NAME)
        if query.type not in _MOST:
            return query.reply(_OK)
        if self._in_flight >= self._bounds.dns_queries:
            return query.reply(_FAILED)
        self._in_flight += 1
        try:
            return (yield from self._resolve(query, name, peer))
        finally:
            self._in_flight -= 1

    def _deny(self, asked: str, name: object, peer: str) -> None:
        allow = f"{name}:443" if isinstance(name, str) else None
        self._denials.add(Denied(asked, DNS_PORT, "its name is not in the policy", allow=allow), peer)

    def _resolve(self, query: Query, name: str, peer: str) -> Steps[bytes]:
        rule = self._policy.rule_of_name(name)
        assert rule is not None
        deadline = time.monotonic() + self._bounds.dns_seconds
        try:
            addresses = yield from self._dialer.allowed_addresses(name, rule.port, rule, deadline)
        except Denied as denied:
            self._denials.add(denied, peer)
            return query.reply(_NO_NAME)
        except (UnresolvedError, TimedOut):
            return query.reply(_FAILED)
        wanted = [each for each in addresses if isinstance(each, IPv4Address) == (query.type == _A)]
        return query.reply(_OK, wanted[: _MOST[query.type]])


def _exactly(client: Stream, size: int, deadline: float) -> Steps[bytes]:
    while len(client.buffer) < size:
        if not (yield from client.fill(deadline)):
            raise EOFError
    return client.take(size)
