"""Ends failed calls: the status from the table of errors, with code and retryability as trailing metadata."""

from __future__ import annotations

from typing import NoReturn

import grpc
from grpc.aio import ServicerContext

from debug_server.errors import DebugServerError, UnavailableError
from debug_server.service import mapping_of

_ROOM = 4096  # most clients accept 8 KiB of metadata, and drop a response with more


def status_of(error: DebugServerError) -> grpc.StatusCode:
    """The status of ``error``."""
    return grpc.StatusCode[mapping_of(error).grpc]


def trailers(error: DebugServerError) -> tuple[tuple[str, str], ...]:
    """The metadata of ``error`` for programs."""
    found = [("code", error.code), ("retryable", str(mapping_of(error).retryable).lower())]
    if isinstance(error, UnavailableError):
        found.append(("retry-after", f"{error.retry_after:g}"))
    return tuple(found)


async def abort_call(context: ServicerContext, error: DebugServerError) -> NoReturn:
    """End the call with the status of ``error``."""
    await context.abort(status_of(error), _bounded(str(error)), trailers(error))
    raise error


def _bounded(text: str) -> str:
    # Everything but printable ASCII is sent as three characters a byte.
    room = _ROOM if text.isascii() and text.isprintable() else _ROOM // 3
    return text.encode("utf-8", "backslashreplace")[:room].decode("utf-8", "ignore")
