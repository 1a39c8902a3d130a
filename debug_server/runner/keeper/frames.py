"""The protocol of a keeper's socket: length, kind, payload.

Kind ``J`` is a JSON object, ``W`` bytes for the child's stdin under a write id, ``O`` relayed stdout at an offset.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEADER = struct.Struct("<IB")
JSON, WRITE, OUTPUT = b"J"[0], b"W"[0], b"O"[0]
MAX_FRAME = 16 << 20
NO_KEEPER = bytes(4)  # from the fork server, instead of the pid of a new keeper
_OFFSET = struct.Struct("<Q")
_ID_LENGTH = struct.Struct("<H")
_to_text = json.JSONEncoder(separators=(",", ":")).encode  # made once: ``json.dumps`` makes one for each call


def encode(kind: int, payload: bytes) -> bytes:
    """One frame."""
    return HEADER.pack(len(payload), kind) + payload


def to_json(value: dict[str, Any]) -> bytes:
    """A JSON object as bytes."""
    return _to_text(value).encode()


def encode_json(message: dict[str, Any]) -> bytes:
    """One JSON frame."""
    return encode(JSON, to_json(message))


def encode_write(write_id: str, data: bytes) -> bytes:
    """One stdin write; a keeper applies each id once."""
    name = write_id.encode()
    return encode(WRITE, _ID_LENGTH.pack(len(name)) + name + data)


def decode_write(payload: bytes) -> tuple[str, bytes]:
    """The inverse of ``encode_write``, without its header."""
    (length,) = _ID_LENGTH.unpack_from(payload)
    start = _ID_LENGTH.size
    return payload[start : start + length].decode(), payload[start + length :]


def encode_output(offset: int, data: bytes) -> bytes:
    """A piece of relayed stdout."""
    return encode(OUTPUT, _OFFSET.pack(offset) + data)


def decode_output(payload: bytes) -> tuple[int, bytes]:
    """The inverse of ``encode_output``, without its header."""
    return _OFFSET.unpack_from(payload)[0], payload[_OFFSET.size :]


class FrameError(Exception):
    """The peer sent an invalid frame."""


class FrameBuffer:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Add bytes and yield the frames they complete."""
        self._data += data
        while len(self._data) >= HEADER.size:
            length, kind = HEADER.unpack_from(self._data)
            if length > MAX_FRAME:
                raise FrameError(f"a frame of {length} bytes is longer than {MAX_FRAME}")
            end = HEADER.size + length
            if len(self._data) < end:
                return
            payload = bytes(self._data[HEADER.size : end])
            del self._data[:end]
            yield kind, payload


def receive(connection: socket.socket, buffer: FrameBuffer) -> list[tuple[int, bytes]] | None:
    """Wait for at least one frame; None when the peer has closed."""
    while True:
        data = connection.recv(1 << 16)
        if not data:
            return None
        if frames := list(buffer.feed(data)):
            return frames
