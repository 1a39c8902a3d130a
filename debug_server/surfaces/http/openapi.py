"""The OpenAPI 3.1 document, made from the tables of operations and routes when somebody asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from debug_server.service import OPERATIONS
from debug_server.service.messages import Reply
from debug_server.surfaces.http.endpoints import PATCH_TYPE, WaitQuery
from debug_server.surfaces.http.logs import LogQuery, SessionLogQuery
from debug_server.surfaces.http.routes import ROUTES, Route

_REFERENCE = "#/components/schemas/{model}"
_FAILURES = {
    "401": "no valid token",
    "403": "the token lacks a scope",
    "404": "unknown, or another's",
    "409": "not possible in its present state",
    "413": "the body is too large",
    "422": "a value is wrong; `field` names it",
    "429": "a quota or a bound is reached; see Retry-After",
    "501": "no debugger is attached",
    "502": "the git remote did not answer",
    "503": "the server is shutting down, or its store is away; see Retry-After",
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A request repeated with the same key is done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
}
_LAST_EVENT = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The id of the last event that was received.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
}
_RANGE = {"name": "Range", "in": "header", "required": False, "schema": {"type": "string"}}


class Fault(Reply):
    """What went wrong."""

    code: str
    message: str
    retryable: bool
    field: str | None = None


class ErrorReply(Reply):
    """Every refusal."""

    error: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Special:
    """A path that is more than decode, call and encode."""

    route: Route
    query: type[BaseModel] | None = None  # fields of the query, where they are not the operation's
    produces: tuple[str, ...] = ("application/json",)
    headers: tuple[dict[str, Any], ...] = ()


def _special(method: str, path: str, operation: str, status: int = 200, **more: Any) -> Special:
    return Special(route=Route(method=method, path=path, operation=operation, status=status), **more)


SPECIALS = (
    _special("POST", "/runs", "start_run", 201, query=WaitQuery),
    _special("GET", "/sessions/{session_id}/diff", "diff_session", produces=("application/json", PATCH_TYPE)),
    _special(
        "GET",
        "/sessions/{session_id}/artifacts/{artifact_id}",
        "get_artifact",
        produces=("application/octet-stream",),
        headers=(_RANGE,),
    ),
    _special(
        "GET",
        "/commands/{command_id}/log",
        "read_log",
        query=LogQuery,
        produces=("application/octet-stream",),
        headers=(_RANGE,),
    ),
    _special(
        "GET", "/commands/{command_id}/log.ndjson", "follow_log", query=LogQuery, produces=("application/x-ndjson",)
    ),
    _special(
        "GET",
        "/commands/{command_id}/log/events",
        "follow_log",
        query=LogQuery,
        produces=("text/event-stream",),
        headers=(_LAST_EVENT,),
    ),
    _special(
        "GET", "/sessions/{session_id}/logs", "follow_log", query=SessionLogQuery, produces=("application/x-ndjson",)
    ),
    _special("GET", "/events/stream", "follow_events", produces=("text/event-stream",), headers=(_LAST_EVENT,)),
)
_PROBES = {
    "/health": "The process answers.",
    "/healthz": "The same with details.",
    "/livez": "The process answers.",
    "/readyz": "Store, disk and keepers, checked now; 503 when one fails or the server is leaving.",
    "/metrics": "Prometheus' text format, for this machine or for a token.",
}


def document(title: str, version: str) -> dict[str, Any]:
    """The whole document."""
    specials = {item.route.path: item for item in SPECIALS}
    routes = [*ROUTES, *(item.route for item in SPECIALS)]
    models = _models(routes)
    paths: dict[str, Any] = {path: {"get": _probe(path, sentence)} for path, sentence in _PROBES.items()}
    _, components = models_json_schema([(item, "validation") for item in models], ref_template=_REFERENCE)
    schemas = components["$defs"]
    for route in routes:
        described = _described(route, specials.get(route.path), schemas)
        paths.setdefault(route.path, {})[route.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _models(routes: Iterable[Route]) -> list[type[BaseModel]]:
    used = [OPERATIONS[route.operation] for route in routes]
    found = [item.request for item in used] + [item.reply for item in used]
    return list(dict.fromkeys([*found, ErrorReply, WaitQuery, LogQuery, SessionLogQuery]))


def _described(route: Route, special: Special | None, schemas: dict[str, Any]) -> dict[str, Any]:
    operation = OPERATIONS[route.operation]
    request = schemas[operation.request.__name__]
    names = re.findall(r"{(\w+)}", route.path)
    query = special.query if special else None
    asked = schemas[query.__name__] if query else request if route.method != "POST" else {}
    produces = special.produces if special else ("application/json",)
    parameters = [*_parameters(names, request if not query else {**request, **asked}, asked)]
    parameters += special.headers if special else ()
    found: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{re.sub(r'[^a-z]+', '_', route.path).strip('_')}",
        "summary": operation.sentence,
        "description": f"Scopes: {', '.join(operation.scopes or ()) or 'none'}.",
        "security": [{"bearer": []}],
        "parameters": [*parameters, _KEY] if route.method == "POST" else parameters,
        "responses": _responses(route, operation.reply.__name__, produces),
    }
    if route.method == "POST":
        found["requestBody"] = _body(request, names)
    return found


def _parameters(names: list[str], request: dict[str, Any], asked: dict[str, Any]) -> Iterable[dict[str, Any]]:
    properties = request.get("properties", {})
    for name in names:
        yield {"name": name, "in": "path", "required": True, "schema": properties[name]}
    for name, schema in asked.get("properties", {}).items():
        if name not in names:
            required = name in asked.get("required", ())
            yield {"name": name, "in": "query", "required": required, "schema": schema}


def _body(request: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The request without what the path says."""
    properties = {name: schema for name, schema in request.get("properties", {}).items() if name not in names}
    required = [name for name in request.get("required", ()) if name not in names]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {"application/json": {"schema": schema}}}


def _responses(route: Route, reply: str, produces: tuple[str, ...]) -> dict[str, Any]:
    fault = {"application/json": {"schema": {"$ref": _REFERENCE.format(model=ErrorReply.__name__)}}}
    responses: dict[str, Any] = {
        code: {"description": sentence, "content": fault} for code, sentence in _FAILURES.items()
    }
    schema = {"$ref": _REFERENCE.format(model=reply)}
    content = {kind: {"schema": schema} if kind == "application/json" else {} for kind in produces}
    responses[str(route.status)] = {"description": "Done.", "content": content}
    if "application/octet-stream" in produces:
        responses["206"] = {"description": "A range of it.", "content": content}
        responses["416"] = {"description": "The range lies behind the end.", "content": fault}
    return dict(sorted(responses.items()))


def _probe(path: str, sentence: str) -> dict[str, Any]:
    kind = "text/plain" if path == "/metrics" else "application/json"
    responses: dict[str, Any] = {"200": {"description": "Yes.", "content": {kind: {}}}}
    if path == "/readyz":
        responses["503"] = {"description": "Not now.", "content": {kind: {}}}
    if path == "/metrics":
        responses["401"] = {"description": "No valid token.", "content": {"application/json": {}}}
    return {"operationId": f"get_{path[1:]}", "summary": sentence, "responses": responses}
