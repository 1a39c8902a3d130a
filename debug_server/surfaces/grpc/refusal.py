"""How a call ends that fails: the status of the one error table, and its code and retryability as trailing metadata."""

from __future__ import annotations

from typing import NoReturn

import grpc
from grpc.aio import ServicerContext

from debug_server.errors import DebugServerError, UnavailableError
from debug_server.service import mapping_of

_ROOM = 4096  # clients take 8 KiB of metadata as a rule, and drop the whole answer when it is more


def status_of(error: DebugServerError) -> grpc.StatusCode:
    """The status that tells ``error``."""
    return grpc.StatusCode[mapping_of(error).grpc]


def trailers(error: DebugServerError) -> tuple[tuple[str, str], ...]:
    """The metadata that tells ``error`` to a program."""
    told = [("code", error.code), ("retryable", str(mapping_of(error).retryable).lower())]
    if isinstance(error, UnavailableError):
        told.append(("retry-after", f"{error.retry_after:g}"))
    return tuple(told)


async def refuse(context: ServicerContext, error: DebugServerError) -> NoReturn:
    """End the call."""
    await context.abort(status_of(error), _bounded(str(error)), trailers(error))
    raise error


def _bounded(text: str) -> str:
    # Everything but printable ASCII is sent as three characters a byte.
    room = _ROOM if text.isascii() and text.isprintable() else _ROOM // 3
    return text.encode("utf-8", "backslashreplace")[:room].decode("utf-8", "ignore")
