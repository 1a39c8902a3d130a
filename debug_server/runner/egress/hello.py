"""The name in a TLS ClientHello, read before a byte of it is passed on."""

from __future__ import annotations

import struct

from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.egress.loop import Steps

HANDSHAKE = 22  # the first byte of every TLS connection
ALERT_ACCESS_DENIED = b"\x15\x03\x03\x00\x02\x02\x31"
_RECORD = struct.Struct("!BBBH")  # type, version, length
_BEGINNINGS = tuple(map(bytearray, (b"", b"\x16", b"\x16\x03")))  # type, major version: as far as they came
_MAX_RECORD = 1 << 14
_CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 1, 0, 0


class HelloError(Exception):
    """The bytes are no ClientHello with at most one name."""


def read_server_name(stream: Stream, bounds: Bounds, deadline: float) -> Steps[str | None]:
    """The name; None if there is none. The bytes stay in the stream's buffer.

    A ClientHello may be cut into many records, and each into many segments.
    """
    records = _Records(bounds.hello_bytes)
    while (message := records.message(stream.buffer)) is None:
        if not (yield from stream.fill(deadline)):
            raise HelloError("the connection ended within the ClientHello")
    return server_name(message)


class _Records:
    """The first handshake message of a connection. Each record is looked at once, however it comes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._at = 0  # where the next record begins
        self._message = bytearray()

    def message(self, data: bytearray) -> bytes | None:
        """Its body, given all bytes so far; None if more are needed."""
        while self._add_record(data):
            if self._message[0] != _CLIENT_HELLO:
                raise HelloError("TLS begins with something else than a ClientHello")
            if len(self._message) >= 4:
                wanted = 4 + int.from_bytes(self._message[1:4], "big")
                if len(self._message) > wanted:
                    raise HelloError("a second message follows the ClientHello")
                if len(self._message) == wanted:
                    return bytes(self._message[4:])
        if len(data) > self._limit:
            raise HelloError(f"the ClientHello is longer than {self._limit} bytes")
        return None

    def _add_record(self, data: bytearray) -> bool:
        if data[self._at : self._at + 2] not in _BEGINNINGS:
            raise HelloError("it is not TLS")
        body = self._at + _RECORD.size
        if body > len(data):
            return False
        length = _RECORD.unpack_from(data, self._at)[3]
        if not 0 < length <= _MAX_RECORD:
            raise HelloError("it is not TLS")
        if body + length > len(data):
            return False
        self._message += data[body : body + length]
        self._at = body + length
        return True


class _Reader:
    """Cuts a message; HelloError when it is too short."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise HelloError("the ClientHello is cut off")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    @property
    def ended(self) -> bool:
        return self._at == len(self._data)


def server_name(message: bytes) -> str | None:
    """The name in a ClientHello. Of an encrypted one the outer name counts, because the server sees that first."""
    hello = _Reader(message)
    hello.take(2 + 32)  # version, random
    hello.vector(1)  # session
    hello.vector(2)  # ciphers
    hello.vector(1)  # compression
    if hello.ended:
        return None
    extensions = _Reader(hello.vector(2))
    if not hello.ended:
        raise HelloError("bytes follow the extensions of the ClientHello")
    names = []
    while not extensions.ended:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            names.append(_one_name(body))
    if len(names) > 1:
        raise HelloError("the ClientHello has several names")
    return names[0] if names else None


def _one_name(body: bytes) -> str:
    extension = _Reader(body)
    names = _Reader(extension.vector(2))
    if names.number(1) != _HOST_NAME:
        raise HelloError("the name of the ClientHello is not a host name")
    name = names.vector(2)
    if not names.ended or not extension.ended:
        raise HelloError("the ClientHello has several names")
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise HelloError("the name of the ClientHello is not ASCII") from None
