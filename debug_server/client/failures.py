"""Maps error responses and network failures to the classes of the error tree."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from debug_server import __version__
from debug_server.errors import (
    AccessError,
    ConfigurationError,
    DebugServerError,
    DiskFullError,
    FieldViolation,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    PayloadTooLargeError,
    QuotaExceededError,
    RangeNotSatisfiableError,
    UnavailableError,
    UnreachableError,
    UnsupportedByServerError,
)

# For responses without an error code, such as those of a proxy.
_BY_STATUS: dict[int, type[DebugServerError]] = {
    401: AccessError,
    403: ForbiddenError,
    404: NotFoundError,
    413: PayloadTooLargeError,
    422: InvalidInputError,
    429: QuotaExceededError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
    507: DiskFullError,
}

# Reasons of OpenSSL for an answer that is not TLS.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
# The HTTP library's words for an answer that is not HTTP.
_NO_HTTP = ("illegal request line", "illegal status line")


def classes_by_code() -> dict[str, type[DebugServerError]]:
    """Every class of the error tree by its code; a class that inherits its code is left out."""
    return {cls.code: cls for cls in _tree(DebugServerError) if "code" in vars(cls)}


def _tree(cls: type[DebugServerError]) -> Iterator[type[DebugServerError]]:
    yield cls
    for inner in cls.__subclasses__():
        yield from _tree(inner)


def error_from_response(response: httpx.Response, *, operation: str | None = None) -> DebugServerError:
    """The error of a response with status 400 or above; its body must have been read.

    With ``operation``, the error of a server that is too old for it says so.
    """
    fields = _error_object(response)
    cls = classes_by_code().get(str(fields.get("code"))) or _BY_STATUS.get(response.status_code, DebugServerError)
    answered = f"{response.request.url} answered {response.status_code} {response.reason_phrase}"
    text = str(fields.get("message") or answered)
    if operation is not None and _lacks_route(response, text):
        return UnsupportedByServerError(
            f"the server at {_origin(response)} has no operation {operation!r}: it does not serve this part, or it is "
            f"older than this client ({__version__}). Upgrade it with `pip install -U debug-server`, or install the "
            "client of its version"
        )
    if response.status_code == httpx.codes.UNAUTHORIZED and "Authorization" not in response.request.headers:
        text = f"{text}. Set DEBUG_SERVER_TOKEN, pass token=, or run `debug-server configure`"
    if issubclass(cls, RangeNotSatisfiableError):
        return cls(text, size=_size(response))
    if issubclass(cls, InvalidInputError):
        return cls(text, field=_text(fields, "field"), violations=_violations(fields))
    if issubclass(cls, NotFoundError):
        return cls(text, what=_text(fields, "what"))
    if issubclass(cls, UnavailableError):
        return cls(text, retry_after=retry_after(response) or 1.0)
    return cls(text)


def _lacks_route(response: httpx.Response, text: str) -> bool:
    """Whether the server does not know the path, or not this method of it."""
    if response.status_code == httpx.codes.METHOD_NOT_ALLOWED:
        return True
    return response.status_code == httpx.codes.NOT_FOUND and text.startswith("there is no path ")


def _origin(response: httpx.Response) -> str:
    url = response.request.url
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _error_object(response: httpx.Response) -> dict[str, Any]:
    try:
        found = json.loads(response.content)["error"]
    except (ValueError, TypeError, KeyError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    found = fields.get(name)
    return found if isinstance(found, str) else None


def _violations(fields: Mapping[str, Any]) -> list[FieldViolation]:
    given = fields.get("violations")
    found = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    return [FieldViolation(field=str(one.get("field")), reason=str(one.get("reason"))) for one in found]


def _size(response: httpx.Response) -> int:
    size = response.headers.get("Content-Range", "").rpartition("/")[2]
    return int(size) if size.isdigit() else 0


def retry_after(response: httpx.Response) -> float | None:
    """The seconds of a Retry-After header."""
    try:
        return max(0.0, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return None


def no_answer(base_url: str, error: httpx.HTTPError | httpx.StreamError) -> UnreachableError:
    """Return the error for a network failure.

    ConfigurationError for an invalid certificate and for an address with the wrong scheme or port: no retry helps.
    """
    if (reason := wrong_protocol(base_url, error)) is not None:
        raise ConfigurationError(reason) from error
    if (reason := _certificate_fault(error)) is not None:
        raise ConfigurationError(
            f"the certificate of {base_url} cannot be verified ({reason}): set SSL_CERT_FILE to the"
            " file of its certificate authority, or accept any certificate with --insecure (verify_tls=False)"
        ) from error
    advice, connected = "", not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    if not connected:
        advice = ". Start it with `debug-server serve`, or set DEBUG_SERVER_URL to the server's address"
    elif isinstance(error, httpx.RemoteProtocolError) and base_url.startswith("http://"):
        advice = ". If the server has a certificate, write https://"
    sentence = f"no answer from {base_url}: {str(error) or type(error).__name__}{advice}"
    return UnreachableError(sentence, connected=connected)


def wrong_protocol(base_url: str, error: BaseException) -> str | None:
    """What to write where the server does not speak the protocol of the address."""
    fault = _tls_fault(error)
    if fault is not None and fault.reason in _NO_TLS:
        plain = urlsplit(base_url)._replace(scheme="http").geturl()
        return f"{base_url} does not speak HTTPS: write {plain} if the server has no certificate"
    if str(error).startswith(_NO_HTTP):
        return (
            f"{base_url} does not speak HTTP, as a gRPC port does not: write the server's HTTP address, such as "
            "http://127.0.0.1:8000"
        )
    return None


def _certificate_fault(error: BaseException) -> str | None:
    fault = _tls_fault(error)
    return fault.verify_message if isinstance(fault, ssl.SSLCertVerificationError) else None


def _tls_fault(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None
