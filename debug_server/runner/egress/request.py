"""The head of an HTTP request, parsed strictly: what two parsers could read in two ways is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.loop import TimedOut
from debug_server.runner.egress.names import Host, HostError, format_authority, parse_authority
from debug_server.runner.egress.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.egress.loop import Steps

Headers = list[tuple[str, str]]  # names as they were written

END = b"\r\n\r\n"
_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/1\.([01])")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_LENGTH = re.compile(r"[0-9]{1,18}")
_PREFIX = re.compile(r"http://", re.IGNORECASE)
_HOP_BY_HOP = ("connection", "keep-alive", "te", "trailer", "upgrade", "http2-settings")
_WRITTEN_ANEW = ("transfer-encoding", "content-length", "host")


class BadRequestError(Exception):
    """The client sent something that is refused for its form; ``status`` is the answer."""

    def __init__(self, why: str, *, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, checked."""

    method: str
    host: Host
    port: int
    path: str  # with the query; empty for CONNECT
    headers: Headers = field(default_factory=list)  # end to end only, without Host and those of the framing
    length: int = 0  # of the body
    chunked: bool = False

    @property
    def is_connect(self) -> bool:
        """Whether the client wants a tunnel."""
        return self.method == "CONNECT"

    def head(self, *, absolute: bool, extra: Headers) -> bytes:
        """The head for the server, or in absolute form for a further proxy."""
        authority = format_authority(self.host, self.port).removesuffix(":80")
        lines = [f"{self.method} {'http://' + authority if absolute else ''}{self.path} HTTP/1.1", f"Host: {authority}"]
        lines += [f"{name}: {value}" for name, value in (*self.headers, *extra)]
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        elif self.length or self.method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {self.length}")
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")


def read_head(stream: Stream, bounds: Bounds, deadline: float) -> Steps[bytes]:
    """The bytes up to the empty line; empty if the stream ends before its first byte."""
    start = 0
    while (end := stream.buffer.find(END, start)) < 0:
        if len(stream.buffer) > bounds.head_bytes:
            raise BadRequestError(f"the head is longer than {bounds.head_bytes} bytes", status=431)
        start = max(0, len(stream.buffer) - len(END) + 1)
        try:
            more = yield from stream.fill(deadline)
        except TimedOut:
            raise BadRequestError("the head did not come in time", status=408) from None
        if not more:
            if stream.buffer:
                raise BadRequestError("the head is not complete")
            return b""
    if end > bounds.head_bytes:
        raise BadRequestError(f"the head is longer than {bounds.head_bytes} bytes", status=431)
    return stream.take(end + len(END))


def parse_request(head: bytes, *, inside: tuple[Host, int] | None = None) -> Request:
    """A request to a proxy; or one ``inside`` a tunnel to that host and port, which has no host in its first line."""
    first, *rest = head.removesuffix(END).decode("latin-1").split("\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise BadRequestError("the first line is not that of an HTTP/1 request")
    method, target, minor = line.groups()
    headers = [_header(text) for text in rest]
    try:
        host, port, path = _split_target(method, target, inside)
        _check_host(headers, host, port, required=minor == "1")
    except HostError as error:
        raise BadRequestError(str(error)) from None
    length, chunked = _framing(headers, allows_chunked=minor == "1")
    if method == "CONNECT" and (length or chunked):
        raise BadRequestError("CONNECT has no body")
    kept = _end_to_end(headers)
    return Request(method=method, host=host, port=port, path=path, headers=kept, length=length, chunked=chunked)


def _header(text: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(text)
    if found is None:
        raise BadRequestError("a header line is not in the form `Name: value`")
    name, value = found.groups()
    return name, value


def _split_target(method: str, target: str, inside: tuple[Host, int] | None) -> tuple[Host, int, str]:
    if inside is not None:
        if method == "CONNECT" or not target.startswith("/"):
            raise BadRequestError("a request inside a tunnel names a path of that server alone")
        return *inside, target
    if method == "CONNECT":
        return *parse_authority(target), ""
    scheme = _PREFIX.match(target)
    if scheme is None:
        raise BadRequestError("this is a proxy: send CONNECT, or a request with a whole http:// URL")
    rest = target[scheme.end() :]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    path = rest[len(authority) :]
    if "#" in path:
        raise BadRequestError("a URL in a request has no fragment")
    if "@" in authority:
        raise BadRequestError("a URL in a request has no user name: send it in a header")
    return *parse_authority(authority, 80), path if path.startswith("/") else f"/{path}"


def _check_host(headers: Headers, host: Host, port: int, *, required: bool) -> None:
    found = _values(headers, "host")
    if len(found) > 1 or (required and not found):
        raise BadRequestError("a request has one Host header")
    # Some clients leave the port out although it is not 80. It is the same server, so that is no contradiction.
    if found and parse_authority(found[0], port) != (host, port):
        raise BadRequestError(f"the header `Host: {found[0]}` is not about {format_authority(host, port)}", status=403)


def _framing(headers: Headers, *, allows_chunked: bool) -> tuple[int, bool]:
    lengths, codings = _values(headers, "content-length"), _values(headers, "transfer-encoding")
    if codings:
        if lengths or not allows_chunked or [coding.lower() for coding in codings] != ["chunked"]:
            raise BadRequestError("Transfer-Encoding is `chunked` alone, without a Content-Length")
        return 0, True
    if not lengths:
        return 0, False
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise BadRequestError("Content-Length is one number")
    return int(lengths[0]), False


def _values(headers: Headers, wanted: str) -> list[str]:
    return [value for name, value in headers if name.lower() == wanted]


def _end_to_end(headers: Headers) -> Headers:
    named = {word.strip().lower() for value in _values(headers, "connection") for word in value.split(",")}
    drop = named.union(_HOP_BY_HOP, _WRITTEN_ANEW)
    return [(name, value) for name, value in headers if name.lower() not in drop and not _is_for_proxy(name)]


def _is_for_proxy(name: str) -> bool:
    return name.lower().startswith("proxy-")
