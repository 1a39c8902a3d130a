"""One connection of the command to the proxy: one request, its answer or its tunnel."""

from __future__ import annotations

import time

from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.denials import Denials, Denied
from debug_server.runner.egress.dialer import Dialer, Link, UnreachableError
from debug_server.runner.egress.exchange import Exchange
from debug_server.runner.egress.hello import ALERT_ACCESS_DENIED, HANDSHAKE
from debug_server.runner.egress.loop import Loop, TimedOut
from debug_server.runner.egress.relay import Mover
from debug_server.runner.egress.request import BadRequestError, Request, parse_request, read_head
from debug_server.runner.egress.stream import Stream
from debug_server.runner.egress.tunnel import HTTP, Tunnel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.egress.loop import Steps

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_ANSWER_SECONDS = 10.0
_PHRASES = {
    400: "Bad Request",
    403: "Forbidden",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
}


class Proxying:
    """What the connections of one command share."""

    __slots__ = ("bounds", "denials", "dialer", "loop", "mover")

    def __init__(self, loop: Loop, bounds: Bounds, dialer: Dialer, denials: Denials) -> None:
        self.loop, self.bounds, self.dialer, self.denials = loop, bounds, dialer, denials
        self.mover = Mover(loop, bounds)


class Connection:
    """Serves one client. ``waits`` while it has not sent a whole request: it may then be closed to make room."""

    def __init__(self, shared: Proxying, client: Stream, peer: str) -> None:
        self._shared = shared
        self._client, self._peer = client, peer
        self._server: Stream | None = None
        self._opened = False  # the client was told that its tunnel is open: the next bytes are the server's
        self.waits = True

    def run(self) -> Steps[None]:
        """The task of this connection."""
        try:
            yield from self._serve()
        except Denied as denied:
            self._shared.denials.add(denied, self._peer)
            yield from self._answer(403, denied.advice)
        except BadRequestError as error:
            yield from self._answer(error.status, str(error))
        except UnreachableError as error:
            yield from self._answer(502, str(error))
        except (OSError, TimedOut):
            pass  # the client or the server is gone
        finally:
            self.close()

    def close(self) -> None:
        """End it now."""
        self._client.close()
        if self._server is not None:
            self._server.close()

    def _serve(self) -> Steps[None]:
        bounds = self._shared.bounds
        head = yield from read_head(self._client, bounds, time.monotonic() + bounds.head_seconds)
        self.waits = False
        if not head:
            return
        request = parse_request(head)
        link = yield from self._shared.dialer.open(request.host, request.port, tunnel=request.is_connect)
        self._server = link.stream
        if not request.is_connect:
            yield from self._exchange(link, request)
        else:
            yield from self._client.send(_ESTABLISHED, time.monotonic() + _ANSWER_SECONDS)
            yield from self._serve_tunnel(link, request)

    def _serve_tunnel(self, link: Link, request: Request) -> Steps[None]:
        bounds = self._shared.bounds
        if request.port == HTTP:  # some clients open a tunnel for plain HTTP, too: its Host header is checked as well
            head = yield from read_head(self._client, bounds, time.monotonic() + bounds.head_seconds)
            if head:
                yield from self._exchange(link, parse_request(head, inside=(request.host, request.port)))
            return
        self._opened = True
        yield from Tunnel(
            self._shared.loop,
            self._shared.mover,
            bounds,
            client=self._client,
            server=link.stream,
            host=request.host,
            port=request.port,
        ).run()

    def _exchange(self, link: Link, request: Request) -> Steps[None]:
        self._opened = True  # from here on, an answer may have begun
        exchange = Exchange(self._shared.loop, self._shared.mover, self._shared.bounds, self._client, link)
        try:
            yield from exchange.run(request)
        except (BadRequestError, UnreachableError):
            self._opened = exchange.answered
            raise
        yield from self._client.linger()

    def _alert(self) -> Steps[None]:
        """In TLS: say that access was denied. The hello is still in the buffer, because nothing of it was passed on."""
        if self._client.buffer[:1] == bytes([HANDSHAKE]):
            try:
                yield from self._client.send(ALERT_ACCESS_DENIED, time.monotonic() + _ANSWER_SECONDS)
            except (OSError, TimedOut):
                return
            yield from self._client.linger()

    def _answer(self, status: int, text: str) -> Steps[None]:
        """Say why there is no answer of a server, unless bytes of one may have gone out."""
        if self._opened:
            yield from self._alert()
            return
        body = f"debug-server: {text}\n".encode()
        head = f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        try:
            yield from self._client.send(head.encode() + body, time.monotonic() + _ANSWER_SECONDS)
        except (OSError, TimedOut):
            return
        yield from self._client.linger()
