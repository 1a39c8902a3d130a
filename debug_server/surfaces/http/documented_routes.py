"""The OpenAPI documentation of routes: of those of the table and those of parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from starlette.routing import Route

from debug_server.surfaces.http.endpoints import Endpoint, with_error_responses

JSON, NDJSON, SSE, BYTES = ("application/json", "application/x-ndjson", "text/event-stream", "application/octet-stream")
LAST_EVENT = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The id of the last event that was received.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDoc:
    """The documentation of one method of one path."""

    name: str  # the operation's id
    tag: str  # the group that the operation belongs to
    summary: str
    note: str
    request: type[BaseModel]  # has the fields of the path; the others are the body of a POST, or the query
    query: type[BaseModel] | None = None  # fields of the query, where they are not the request's
    reply: type[BaseModel] | None = None  # None: bytes, or a stream
    status: int = 200
    produces: tuple[str, ...] = (JSON,)
    headers: tuple[dict[str, Any], ...] = ()
    open_to_local: bool = False  # the server's own user needs no token
    signed: bool = False  # the caller signs the body, and needs no token

    @property
    def models(self) -> list[type[BaseModel]]:
        """The models whose schemas the document needs."""
        return [item for item in (self.request, self.query, self.reply) if item is not None]


class DocumentedRoute(Route):
    """A route of a part, with its documentation."""

    def __init__(self, method: str, path: str, endpoint: Endpoint, about: RouteDoc) -> None:
        super().__init__(path, with_error_responses(endpoint), methods=[method])
        self.method = method
        self.about = about
