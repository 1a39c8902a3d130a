"""Handles one call of a tool or read of a resource: caller, errors, audit record."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mcp import MCPError
from pydantic import ValidationError

from debug_server import messages as m
from debug_server.errors import AccessError, DebugServerError, InvalidInputError
from debug_server.messages import OPERATIONS
from debug_server.messages.faults import checked, sentence_of
from debug_server.service import Caller, Service, audit
from debug_server.surfaces.mcp.admission import admitted
from debug_server.surfaces.mcp.refusal import told

_LOG = logging.getLogger(__name__)

Progress = Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The context of a tool's call."""

    service: Service
    caller: Caller
    progress: Progress  # called with the seconds since the start and a message
    key: str | None = None  # idempotency key
    request_id: str | None = None  # of its HTTP request

    async def perform(self, name: str, request: m.Request) -> m.Reply:
        """Perform an operation of the table; the service checks its scopes."""
        return await self.service.perform(self.caller, OPERATIONS[name], request, self.key)

    def require(self, *names: str) -> None:
        """ForbiddenError unless the caller may use these operations."""
        for name in names:
            self.caller.require(OPERATIONS[name].scopes or ())

    def may_read_logs(self) -> bool:
        """Whether the caller may read logs."""
        try:
            self.require("read_log", "get_command")
        except AccessError:
            return False
        return True


def caller_of(request: Any) -> Caller:
    """The caller that the HTTP transport authenticated; AccessError for a message of another transport."""
    caller = admitted(getattr(request, "scope", {}))
    if caller is None:
        raise AccessError("no token was given: send `Authorization: Bearer TOKEN`")
    return caller


@asynccontextmanager
async def recorded(path: str, call: Call) -> AsyncIterator[None]:
    """Write the audit record; any exception in the block is raised as a DebugServerError."""
    record = audit.Record(method="MCP", path=path, status="ok", caller=call.caller, request_id=call.request_id)
    try:
        yield
    except DebugServerError as error:
        record.status = error.code
        raise
    except asyncio.CancelledError:
        record.status = "cancelled"
        raise
    except Exception as error:
        # A bug must not expose internals to the caller.
        record.status = DebugServerError.code
        _LOG.exception("mcp_call_failed", extra={"path": path})
        raise DebugServerError("internal error: see the server's log") from error
    finally:
        record.write()


def as_mcp(error: DebugServerError) -> MCPError:
    """The protocol's error."""
    return MCPError(**told(error))


def decoded(kind: type[m.Request], arguments: object, *, of: str) -> Any:
    """The arguments as a request; InvalidInputError names the faults."""
    _check_plain(arguments, of)
    try:
        return checked(kind, arguments)
    except ValidationError as error:
        faults = sentence_of(error, kind, whole="arguments")
        raise InvalidInputError(f"{of} cannot take these arguments: {faults}") from error


def _check_plain(arguments: object, of: str) -> None:
    """Refuse free-form values that JSON cannot represent: half a surrogate pair, NaN, unbounded nesting."""
    try:
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{of} cannot take these arguments, they are not plain JSON: {error}") from error
