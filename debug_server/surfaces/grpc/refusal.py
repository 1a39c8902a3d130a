"""Ends failed calls: the status from the table of errors, with code and retryability as trailing metadata."""

from __future__ import annotations

from typing import NoReturn

import grpc
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from grpc.aio import ServicerContext

from debug_server.errors import DebugServerError, InvalidInputError, UnavailableError
from debug_server.service import mapping_of

# Most clients accept 8 KiB of metadata, and drop a response with more; bytes are sent as base64.
_ROOM, _DETAILS_ROOM, _TEXT_ROOM = 4096, 1600, 400


def status_of(error: DebugServerError) -> grpc.StatusCode:
    """The status of ``error``."""
    return grpc.StatusCode[mapping_of(error).grpc]


def trailers(error: DebugServerError) -> tuple[tuple[str, str | bytes], ...]:
    """The metadata of ``error`` for programs."""
    found: list[tuple[str, str | bytes]] = [
        ("code", error.code),
        ("retryable", str(mapping_of(error).retryable).lower()),
    ]
    if isinstance(error, UnavailableError):
        found.append(("retry-after", f"{error.retry_after:g}"))
    if isinstance(error, InvalidInputError) and error.violations:
        found.append(("grpc-status-details-bin", _details(error).SerializeToString()))
    return tuple(found)


def _details(error: InvalidInputError) -> Status:
    """The wrong fields in the form that gRPC clients know: a google.rpc.Status with a google.rpc.BadRequest."""
    told = BadRequest()
    room = _DETAILS_ROOM
    for one in error.violations:
        field, reason = _bounded(one.field, _TEXT_ROOM), _bounded(one.reason, _TEXT_ROOM)
        room -= len(field) + len(reason)
        if room < 0:
            break
        told.field_violations.add(field=field, description=reason)
    status = Status(code=status_of(error).value[0], message=_bounded(str(error), _TEXT_ROOM))
    status.details.add().Pack(told)
    return status


async def abort_call(context: ServicerContext, error: DebugServerError) -> NoReturn:
    """End the call with the status of ``error``."""
    await context.abort(status_of(error), _bounded(str(error), _ROOM), trailers(error))
    raise error


def _bounded(text: str, room: int) -> str:
    # Everything but printable ASCII is sent as three characters a byte.
    room = room if text.isascii() and text.isprintable() else room // 3
    return text.encode("utf-8", "backslashreplace")[:room].decode("utf-8", "ignore")
