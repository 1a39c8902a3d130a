"""Decodes logs to text: each stream separately, and never within a character."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from functools import lru_cache
from typing import Any, Literal

from debug_server.messages import LogPiece

Encoding = Literal["utf-8", "base64"]
Record = dict[str, Any]
# Reading resumes so many bytes before the offset, because a character may begin there.
LOOK_BACK = 4096
_SHARED = 32  # cached texts for followers of the same log

# Created once: json.dumps with options creates an encoder for each call, which takes longer than encoding a record.
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_decoder = codecs.getincrementaldecoder("utf-8")


class LogText:
    """The records of one reader from an offset on; ``name`` is the field of a record's text."""

    def __init__(self, name: str, offset: int, encoding: Encoding) -> None:
        self._name = name
        self._offset = offset
        self._encoding = encoding
        self._decoders: dict[tuple[int, str], codecs.IncrementalDecoder] = {}
        self._last: dict[tuple[int, str], Record] = {}

    @property
    def start(self) -> int:
        """The offset from which the log must be read."""
        return max(0, self._offset - LOOK_BACK) if self._encoding == "utf-8" else self._offset

    async def records(self, pieces: AsyncGenerator[LogPiece, None]) -> AsyncGenerator[Record, None]:
        """The records of all pieces, and of an incomplete character at the end."""
        async with aclosing(pieces):
            async for piece in pieces:
                record = self.record(piece)
                if record is not None:
                    yield record
        for record in self._rest():
            yield record

    def record(self, piece: LogPiece) -> Record | None:
        """The record of one piece; None if it has no complete character, or is before the offset."""
        end = piece.offset + len(piece.data)
        early = min(len(piece.data), max(0, self._offset - piece.offset))
        data = piece.data
        if early:
            self._decode(piece, data[:early])
            data = data[early:]
        text = self._decode(piece, data) if data else ""
        if not text:
            return None
        record = {
            "stream": piece.stream,
            self._name: text,
            "timestamp": piece.timestamp.isoformat(),
            "offset": piece.offset + early,
            "next_offset": end,
            "command_id": piece.command_id,
        }
        self._last[piece.command_id, piece.stream] = record
        return record

    def _decode(self, piece: LogPiece, data: bytes) -> str:
        if self._encoding == "base64":
            return base64.b64encode(data).decode()
        key = (piece.command_id, piece.stream)
        decoder = self._decoders.get(key)
        if decoder is None or not decoder.getstate()[0]:
            if (text := _whole_text(data)) is not None:
                return text
            decoder = self._decoders.setdefault(key, _decoder("replace"))
        return decoder.decode(data)

    def _rest(self) -> Iterator[Record]:
        for key, decoder in self._decoders.items():
            if (text := decoder.decode(b"", final=True)) and (last := self._last.get(key)):
                yield {**last, self._name: text, "offset": last["next_offset"]}


def encoded(record: Record) -> str:
    """A record as JSON."""
    return _encoded(tuple(record.items()))


def line(record: Record) -> bytes:
    """A record as one line of JSON."""
    return (encoded(record) + "\n").encode()


@lru_cache(_SHARED)
def _encoded(items: tuple[tuple[str, Any], ...]) -> str:
    return _to_json(dict(items))


@lru_cache(_SHARED)
def _whole_text(data: bytes) -> str | None:
    """The text of bytes that start at a character; None if they end within one."""
    decoder = _decoder("replace")
    text = decoder.decode(data)
    return None if decoder.getstate()[0] else text
