"""One plain HTTP request and its answer. The connection ends with them, so nothing can be smuggled behind."""

from __future__ import annotations

import re

from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.dialer import Link, UnreachableError
from debug_server.runner.egress.loop import Loop, TimedOut
from debug_server.runner.egress.relay import Activity, Mover
from debug_server.runner.egress.request import END, BadRequestError, Request, read_head
from debug_server.runner.egress.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.egress.loop import Steps

_BLOCK = 1 << 16
_DISCARDED = 1 << 20
_AFTER_END = 30.0  # how long an answer may pause once the client has ended its side
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?")
_MAX_CHUNK_LINE = 4096
_DROPPED = (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"upgrade")


class Exchange:
    """The request of ``client``, forwarded over ``link``."""

    def __init__(self, loop: Loop, mover: Mover, bounds: Bounds, client: Stream, link: Link) -> None:
        self._loop, self._mover, self._bounds = loop, mover, bounds
        self._client, self._server, self._proxy = client, link.stream, link.proxy
        self._activity = Activity(bounds.idle_seconds)
        self._fault: BadRequestError | None = None
        self._answering = loop.current()
        self.answered = False

    def run(self, request: Request) -> Steps[None]:
        """Forward the request while its answer comes back."""
        extra = self._proxy.headers() if self._proxy else []
        head = request.head(absolute=self._proxy is not None, extra=extra)
        yield from self._mover.send(self._server, head, self._activity)
        body = self._loop.start(self._forward_body(request))
        try:
            yield from self._forward_answer()
        except OSError:
            if self._fault is None or self.answered:
                raise
            raise self._fault from None
        finally:
            self._loop.cancel(body)

    def _forward_body(self, request: Request) -> Steps[None]:
        """A task of its own: a server may answer before it has read the body."""
        try:
            if request.chunked:
                yield from self._forward_chunks()
            else:
                yield from self._forward_bytes(request.length)
            yield from self._discard_rest()
        except BadRequestError as error:
            self._fault = error
            self._server.close()
        except (OSError, TimedOut):
            self._server.close()

    def _forward_bytes(self, length: int) -> Steps[None]:
        while length:
            yield from self._have(1)
            data = self._client.take(min(length, _BLOCK))
            length -= len(data)
            yield from self._mover.send(self._server, data, self._activity)

    def _forward_chunks(self) -> Steps[None]:
        """Write each chunk anew, without extensions and trailers: the server reads just what was read here."""
        while True:
            line = _CHUNK.fullmatch((yield from self._line()))
            if line is None:
                raise BadRequestError("a chunk does not begin with its length")
            length = int(line[1], 16)
            if length == 0:
                break
            yield from self._mover.send(self._server, b"%x\r\n" % length, self._activity)
            yield from self._forward_bytes(length)
            yield from self._have(2)
            if self._client.take(2) != b"\r\n":
                raise BadRequestError("a chunk does not end with its length")
            yield from self._mover.send(self._server, b"\r\n", self._activity)
        while (yield from self._line()):
            pass
        yield from self._mover.send(self._server, b"0\r\n\r\n", self._activity)

    def _line(self) -> Steps[bytes]:
        while (end := self._client.buffer.find(b"\r\n")) < 0:
            if len(self._client.buffer) > _MAX_CHUNK_LINE:
                raise BadRequestError("a line between chunks is too long")
            yield from self._have(len(self._client.buffer) + 1)
        return self._client.take(end + 2)[:-2]

    def _have(self, size: int) -> Steps[None]:
        """Wait until the client has sent this many bytes that are not consumed."""
        while len(self._client.buffer) < size:
            if not (yield from self._client.fill(self._activity.deadline())):
                raise BadRequestError("the body is not complete")
            self._activity.touch()

    def _discard_rest(self) -> Steps[None]:
        """Notice when the client is gone. What it sends after its request goes nowhere."""
        discarded = 0
        while discarded < _DISCARDED:
            discarded += len(self._client.buffer)
            self._client.buffer.clear()
            if not (yield from self._client.fill(float("inf"))):
                self._activity.idle = min(self._activity.idle, _AFTER_END)
                self._loop.wake(self._answering)  # to wait that long and no longer
                return

    def _forward_answer(self) -> Steps[None]:
        while True:
            head = yield from self._read_answer()
            status = _STATUS.fullmatch(head.partition(b"\r\n")[0])
            if status is None or status[1] == b"101":
                raise UnreachableError("the server's answer is not HTTP/1")
            if not status[1].startswith(b"1"):
                break
            yield from self._mover.send(self._client, head, self._activity)
        self.answered = True
        yield from self._mover.send(self._client, _closing(head), self._activity)
        yield from self._mover.move(self._server, self._client, self._activity)

    def _read_answer(self) -> Steps[bytes]:
        try:
            head = yield from read_head(self._server, self._bounds, self._activity.deadline())
        except BadRequestError as error:
            raise UnreachableError(f"the server's answer: {error}") from error
        if not head:
            raise UnreachableError("the server closed the connection without an answer")
        return head


def _closing(head: bytes) -> bytes:
    """The head of an answer that tells the client that the connection ends with it."""
    lines = [
        line
        for line in head.removesuffix(END).split(b"\r\n")
        if line.partition(b":")[0].strip().lower() not in _DROPPED
    ]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])
