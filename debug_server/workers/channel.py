"""The asyncio connection to a keeper in relay mode: the worker's stdin and stdout, and the keeper's events.

A connection that breaks while the keeper is alive is opened again at the current offset, and unanswered writes are sent
again with their ids, which the keeper applies once: no byte is lost or repeated.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from debug_server.errors import WorkerExitedError
from debug_server.runner.keeper import frames

_PIECE = 128 << 10
_WINDOW_BYTES = 512 << 10  # half of what a keeper queues for its child
_WINDOW_PIECES = 512  # half of the ids that a keeper remembers
_ACKNOWLEDGE_EVERY = 128 << 10  # an eighth of the keeper's buffer, so that the keeper does not have to wait


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelListener:
    """Callbacks for the keeper's events, called in the loop."""

    attached: Callable[[int], None]  # the worker's pid
    output: Callable[[str, int], None]  # stream and length
    ending: Callable[[], None]  # the first sign of its end
    broken: Callable[[], None]  # the connection is gone without an end


class RelayChannel(asyncio.Protocol):
    """``WorkerChannel`` over a keeper's socket."""

    def __init__(self, listener: ChannelListener, *, offset: int | None) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._buffer = frames.FrameBuffer()
        self._offset = offset  # of the next byte of stdout; None before the first piece of an adopted worker
        self._pieces: deque[bytes] = deque()
        self._unacknowledged = 0
        self._written = 0
        self._unanswered: dict[str, bytes] = {}  # unanswered writes, in order
        self._unanswered_bytes = 0
        self._requests: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_request_number = 0
        self._sending = asyncio.Lock()
        self._wake = asyncio.Event()  # for senders and the reader; each checks its own condition
        self._refused: str | None = None  # why stdin is closed
        self.closed = False

    async def open(self, connection: socket.socket) -> None:
        """Connect, also again after a broken connection."""
        connection.setblocking(False)
        self._buffer = frames.FrameBuffer()
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=connection)
        self._send_json({"op": "attach", "offset": self._offset, "n": 0})
        for write_id, data in self._unanswered.items():
            self._send_frame(frames.encode_write(write_id, data))

    # -- for the users --------------------------------------------------------------------------------------------

    async def send(self, data: bytes) -> None:
        """Write to the worker's stdin; waits while too much is unanswered. WorkerExitedError when it is gone."""
        if len(data) <= _PIECE and self._room and not self._sending.locked():
            self._check_open()
            self._write(data)
            return
        # Shielded: a sender that is cancelled must not leave an incomplete line.
        await asyncio.shield(asyncio.ensure_future(self._send_long(data)))

    async def _send_long(self, data: bytes) -> None:
        async with self._sending:
            for start in range(0, len(data), _PIECE):
                while not self._room and not self.closed and self._refused is None:
                    self._wake.clear()
                    await self._wake.wait()
                self._check_open()
                self._write(data[start : start + _PIECE])

    async def receive(self) -> bytes:
        """The next piece of stdout; empty when there is no more."""
        while not self._pieces:
            if self.closed:
                return b""
            self._wake.clear()
            await self._wake.wait()
        piece = self._pieces.popleft()
        self._unacknowledged += len(piece)
        if self._unacknowledged >= _ACKNOWLEDGE_EVERY:
            self.acknowledge()
        return piece

    def acknowledge(self) -> None:
        """Acknowledge what was received, so that the keeper can drop it."""
        self._unacknowledged = 0
        held = sum(map(len, self._pieces))
        self._send_json({"op": "ack", "offset": (self._offset or 0) - held})

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """The keeper's answer to a request; WorkerExitedError if it ends first."""
        if self.closed:
            raise WorkerExitedError("the worker has ended: try again in a moment")
        self._last_request_number += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._requests[self._last_request_number] = answer
        self._send_json({**message, "n": self._last_request_number})
        return await answer

    def finish(self) -> None:
        """Close the channel: senders and unanswered requests fail, readers get the end of stdout."""
        self.closed = True
        self._fail_requests()
        self._wake.set()
        if self._transport is not None:
            self._transport.abort()

    @property
    def _room(self) -> bool:
        return self._unanswered_bytes < _WINDOW_BYTES and len(self._unanswered) < _WINDOW_PIECES

    def _check_open(self) -> None:
        if self.closed:
            raise WorkerExitedError("the worker has ended: try again in a moment")
        if self._refused is not None:
            raise WorkerExitedError(f"the worker no longer reads its stdin ({self._refused}): try again in a moment")

    # -- the conversation with the keeper -------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        self._written += 1
        write_id = f"w{self._written}"
        self._unanswered[write_id] = data
        self._unanswered_bytes += len(data)
        self._send_frame(frames.encode_write(write_id, data))

    def _send_json(self, message: dict[str, Any]) -> None:
        self._send_frame(frames.encode_json(message))

    def _send_frame(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Decode frames; a piece may contain parts of them."""
        for kind, payload in self._buffer.feed(data):
            if kind == frames.OUTPUT:
                self._on_output(*frames.decode_output(payload))
            else:
                self._on_message(json.loads(payload))

    def connection_lost(self, exc: Exception | None) -> None:
        """Disconnected: by the keeper, after the end or its death; by us, in ``finish``."""
        self._transport = None
        self._fail_requests()
        if not self.closed:
            self._listener.broken()

    def _on_output(self, offset: int, data: bytes) -> None:
        self._offset = offset + len(data)
        self._pieces.append(data)
        self._wake.set()
        self._listener.output("stdout", len(data))

    def _on_message(self, message: dict[str, Any]) -> None:
        if "write" in message:
            self._on_written(message)
        elif message.get("event") == "logged":
            self._listener.output(message["stream"], message["bytes"])
        elif message.get("event") == "ending":
            self._listener.ending()
        elif message.get("event") == "exit":
            self.finish()
            self._listener.ending()
        elif message.get("n") == 0 and message.get("ok"):
            self._listener.attached(message["pid"])
        elif (answer := self._requests.pop(message.get("n") or 0, None)) is not None and not answer.done():
            answer.set_result(message)

    def _fail_requests(self) -> None:
        answers, self._requests = self._requests, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(WorkerExitedError("the worker ended before its keeper could answer"))

    def _on_written(self, message: dict[str, Any]) -> None:
        self._unanswered_bytes -= len(self._unanswered.pop(message["write"], b""))
        if not message["ok"]:
            self._refused = message["error"]
        self._wake.set()
