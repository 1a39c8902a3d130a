"""Streams that survive lost connections: each keeps a cursor and resumes from it.

request from the cursor -> take lines, advancing the cursor -> the end
   ^                           | connection lost, retriable refusal, read timeout
   +------- a pause <----------+        no gap and no repetition: lines before the cursor are dropped
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import httpx

from debug_server.client.decoding import decode
from debug_server.client.exchange import RETRIED, Pause, delay_before, route_of
from debug_server.client.failures import error_from_response, no_answer
from debug_server.errors import DebugServerError, UnavailableError
from debug_server.messages import EventReply, LogPiece

T = TypeVar("T")
RECONNECT_SECONDS = 120.0  # how long to reconnect without a response before the stream fails
_SILENCE_SECONDS = 60.0  # a connection that is silent for so long may be dead, and resuming is cheap


class ResumableStream(Generic[T]):
    """One stream, independent of the client that sends its requests."""

    operation: str
    endless = False  # True: the stream ends only when the server shuts down, and is then resumed

    def __init__(self, base_url: str, timeout: float) -> None:
        self._base_url = base_url
        self._timeout = httpx.Timeout(timeout, read=max(timeout, _SILENCE_SECONDS))
        self._answered = time.monotonic()
        self._failures = 0

    def request(self) -> dict[str, Any]:
        """The request from the current cursor."""
        route = route_of(self.operation)
        path, query = route.split(self._fields())
        return {"method": route.method, "url": path, "params": query, "timeout": self._timeout}

    def _fields(self) -> dict[str, Any]:
        raise NotImplementedError

    def parse_line(self, line: bytes) -> T | None:
        """The new item of a line; None if there is none."""
        raise NotImplementedError

    def check_response(self, response: httpx.Response) -> Pause | None:
        """None for a successful response, else the pause before a retry; raises an error that no retry helps.

        The body of an error response must have been read.
        """
        if response.is_success:
            self._answered, self._failures = time.monotonic(), 0
            return None
        error = error_from_response(response, operation=self.operation)
        if response.status_code not in RETRIED:
            raise error
        return self._again(error, server_delay=error.retry_after if isinstance(error, UnavailableError) else 0.0)

    def interrupted(self, error: httpx.TransportError) -> Pause:
        """The pause after a network failure."""
        return self._again(no_answer(self._base_url, error))

    def _again(self, error: DebugServerError, *, server_delay: float = 0.0) -> Pause:
        self._failures += 1
        if time.monotonic() - self._answered > RECONNECT_SECONDS:
            raise error
        return Pause(seconds=delay_before(self._failures - 1, server_delay=server_delay))


class LogStream(ResumableStream[LogPiece]):
    """A log from an offset, to its current end or, with ``follow``, until its command or task has ended."""

    def __init__(
        self,
        operation: str,
        named: Mapping[str, int | str],
        offset: int,
        *,
        follow: bool,
        base_url: str,
        timeout: float,
    ) -> None:
        """``named`` are the fields of the request that say whose log it is."""
        super().__init__(base_url, timeout)
        self.operation = operation
        self._named = named
        self._follow = follow
        self.offset = offset

    def _fields(self) -> dict[str, Any]:
        follow = "true" if self._follow else "false"
        return {**self._named, "offset": self.offset, "follow": follow, "encoding": "base64"}

    def parse_line(self, line: bytes) -> LogPiece | None:
        """The piece of a line of JSON, without bytes before the cursor."""
        record = json.loads(line)
        data, start = base64.b64decode(record["data"]), record["offset"]
        if start > self.offset:
            whose = " ".join(str(value) for value in self._named.values())
            raise DebugServerError(f"the log of {whose} has a gap from {self.offset} to {start}")
        data = data[self.offset - start :]
        if not data:
            return None
        piece = decode(LogPiece, {**record, "data": data, "offset": self.offset})
        self.offset = piece.end
        return piece


class EventStream(ResumableStream[EventReply]):
    """Events after a cursor."""

    operation = "follow_events"
    endless = True

    def __init__(
        self,
        *,
        after: int,
        session_id: int | None,
        command_id: int | None,
        kind: str | None,
        base_url: str,
        timeout: float,
    ) -> None:
        super().__init__(base_url, timeout)
        self._after = after
        self._filters = {"session_id": session_id, "command_id": command_id, "kind": kind}

    def _fields(self) -> dict[str, Any]:
        return {"after": self._after, **{name: value for name, value in self._filters.items() if value is not None}}

    def parse_line(self, line: bytes) -> EventReply | None:
        """The event of a ``data:`` line; the other lines only repeat its fields."""
        if not line.startswith(b"data:"):
            return None
        event = decode(EventReply, json.loads(line.removeprefix(b"data:")))
        if event.seq <= self._after:
            return None
        self._after = event.seq
        return event


class LineSplitter:
    """Splits the chunks of a response body into lines; drops an incomplete last line."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that ``data`` completes."""
        first, *others = data.split(b"\n")
        self._rest.append(first)
        for following in others:
            if line := b"".join(self._rest):
                yield line
            self._rest = [following]
