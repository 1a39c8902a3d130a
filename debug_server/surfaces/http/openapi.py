"""The OpenAPI 3.1 document, created from the tables of operations and routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute, Route

from debug_server.messages import OPERATIONS, ROUTES, VARIANTS, Reply
from debug_server.messages.fields import doc_of
from debug_server.messages.routes import VERSIONED
from debug_server.surfaces.http.documented_routes import (
    BYTES,
    JSON,
    LAST_EVENT,
    NDJSON,
    SSE,
    DocumentedRoute,
    RouteDoc,
)
from debug_server.surfaces.http.endpoints import PATCH_TYPE, WaitQuery
from debug_server.surfaces.http.logs import LogQuery, SessionLogQuery

_REFERENCE = "#/components/schemas/{model}"
_FAILURES = {
    "401": "no valid token",
    "403": "the token lacks a scope",
    "404": "unknown, or owned by another token",
    "409": "not possible in the current state",
    "413": "the body is too large",
    "415": "the body is not sent as application/json",
    "422": "a field is wrong; `violations` names each, with the reason",
    "429": "a quota or a limit is reached; see Retry-After",
    "502": "the git remote did not answer",
    "503": "the server is shutting down, or its store is unavailable; see Retry-After",
    "507": "the server's disk is full; see Retry-After",
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A repeated request with the same key is performed once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
}
_RANGE = {
    "name": "Range",
    "in": "header",
    "required": False,
    "description": "A range of bytes, such as `bytes=0-999` or `bytes=-1000`.",
    "schema": {"type": "string"},
}


class Violation(Reply):
    """One wrong field of a request."""

    field: str = Field(description="Its name; inside another field, its path.", examples=["limits.wall_seconds"])
    reason: str


class Fault(Reply):
    """An error."""

    code: str
    message: str
    retryable: bool
    field: str | None = None
    violations: list[Violation] = Field(default_factory=list)
    what: str | None = Field(None, description="The noun of what was not found.", examples=["session"])


class ErrorReply(Reply):
    """The body of every error response."""

    error: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOverride:
    """The documentation of a route with special behaviour."""

    query: type[BaseModel] | None = None  # fields of the query, where they are not the operation's
    produces: tuple[str, ...] = (JSON,)
    headers: tuple[dict[str, Any], ...] = ()


OVERRIDES = {
    "start_run": RouteOverride(query=WaitQuery),
    "exec_command": RouteOverride(produces=(JSON, SSE)),
    "exec_in_session": RouteOverride(produces=(JSON, SSE)),
    "diff_session": RouteOverride(produces=(JSON, PATCH_TYPE)),
    "artifact_file": RouteOverride(produces=(BYTES,), headers=(_RANGE,)),
    "read_log": RouteOverride(query=LogQuery, produces=(BYTES,), headers=(_RANGE,)),
    "follow_log": RouteOverride(query=LogQuery, produces=(NDJSON,)),
    "log_events": RouteOverride(query=LogQuery, produces=(SSE,), headers=(LAST_EVENT,)),
    "session_logs": RouteOverride(query=SessionLogQuery, produces=(NDJSON,)),
    "follow_events": RouteOverride(produces=(SSE,), headers=(LAST_EVENT,)),
}
_TAGS = {
    "repositories": "Git remotes that workspaces are made of.",
    "sessions": "A leased workspace of a commit and a patch, with the commands run in it.",
    "commands": "One process tree each, from its start to one terminal state.",
    "execs": "A command and its output in one request.",
    "runs": "Session and command in one request, which returns when the command is queued.",
    "logs": "The output of commands, addressed by byte offset.",
    "artifacts": "Files that are kept when a command has ended.",
    "events": "Durable, numbered facts.",
    "leases": "Workspaces and who has them.",
    "workers": "Long-lived processes that the server supervises.",
    "tokens": "Access tokens.",
    "tasks": "Host tasks, for orchestrators.",
    "events and runners": "Events of repositories and kanban boards, which start runners.",
    "health": "Probes and metrics.",
    "OpenAI API": "The gateway to a supervised worker; OpenAI's reference describes requests and replies.",
    "MCP": "The Model Context Protocol.",
}
_PROBES = {
    "/health": "The process answers.",
    "/healthz": "The process answers, with details.",
    "/livez": "The process answers.",
    "/readyz": "Check store, disk and keepers; 503 if a check fails or the server is shutting down.",
    "/metrics": "Metrics in Prometheus text format, for the server's own user or with a token.",
}
# Routes that other specifications describe: (method, path) -> (id, tag, summary).
_SPECIFIED_ELSEWHERE = {
    ("POST", "/v1/chat/completions"): ("create_chat_completion", "OpenAI API", "Create a chat completion."),
    ("POST", "/v1/responses"): ("create_response", "OpenAI API", "Create a response."),
    ("GET", "/v1/models"): ("list_models", "OpenAI API", "List the models."),
    ("GET", "/v1/models/{model}"): ("get_model", "OpenAI API", "Get a model."),
    ("GET", "/v1/usage"): ("get_usage", "OpenAI API", "Get the tokens used, by hour or day."),
    ("GET", "/v1/usage/raw"): ("list_usage", "OpenAI API", "List the latest requests and their tokens."),
    ("POST", "/mcp"): ("call_mcp", "MCP", "Send a message of the Model Context Protocol."),
}
_SERVERS = [
    {"url": VERSIONED, "description": "Stays as it is until there is an /api/v2."},
    {"url": "/", "description": "The same paths, for clients that use them already."},
]
_ROOT = [{"url": "/"}]
_ABOUT = (
    'Runs commands on commits and patches of git repositories. Every error is `{"error": {code, message, retryable}}`; '
    "an unknown path or method is answered with the right one."
)
_ANY_OBJECT = {JSON: {"schema": {"type": "object"}}}
_PATH_TYPE = re.compile(r":\w+}")


def document(title: str, version: str, routes: Iterable[BaseRoute] = (), *, api: bool = True) -> dict[str, Any]:
    """The document: the API, and the documented routes among ``routes``."""
    routes = list(routes)
    items = [*_api()] if api else []
    items += [(route.method, route.path, route.about) for route in routes if isinstance(route, DocumentedRoute)]
    models: list[type[BaseModel]] = [*(model for _, _, about in items for model in about.models), ErrorReply]
    unique = list(dict.fromkeys(models))
    _, components = models_json_schema(
        [(item, "serialization" if issubclass(item, Reply) else "validation") for item in unique],
        ref_template=_REFERENCE,
    )
    schemas = {name: _with_docs(name, schema) for name, schema in components["$defs"].items()}
    paths: dict[str, Any] = {
        path: {"servers": _ROOT, "get": _probe(path, summary)} for path, summary in _PROBES.items()
    }
    for method, path, about in items:
        paths.setdefault(path, {})[method.lower()] = _described(method, path, about, schemas)
    served = {_PATH_TYPE.sub("}", route.path) for route in routes if isinstance(route, Route)}
    for (method, path), (name, tag, summary) in _SPECIFIED_ELSEWHERE.items():
        if path in served:
            described = _specified(path, name, tag, summary)
            if method == "POST":
                described["requestBody"] = {"required": True, "content": _ANY_OBJECT}
            paths.setdefault(path, {"servers": _ROOT})[method.lower()] = described
    used = {operation["tags"][0] for item in paths.values() for name, operation in item.items() if name != "servers"}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": _ABOUT},
        "servers": _SERVERS,
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items() if name in used],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {code: _failure(about) for code, about in _FAILURES.items()},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "signature": {"type": "apiKey", "in": "header", "name": "X-Hub-Signature-256"},
            },
        },
    }


def _with_docs(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with a description and an example of each field."""
    properties = schema.get("properties", {})
    return {**schema, "properties": {field: _with_doc(name, field, about) for field, about in properties.items()}}


def _with_doc(name: str, field: str, schema: dict[str, Any]) -> dict[str, Any]:
    doc = doc_of(name, field)
    added: dict[str, Any] = {}
    if doc is not None and "description" not in schema:
        added["description"] = doc.about
    if doc is not None and doc.example is not None and "examples" not in schema:
        added["examples"] = [doc.example]
    return {**schema, **added}


def _api() -> Iterable[tuple[str, str, RouteDoc]]:
    names = [row.name for row in OPERATIONS.values() if row.route.path not in _PROBES and row.name not in OVERRIDES]
    for name in (*names, *OVERRIDES):
        special = OVERRIDES.get(name) or RouteOverride()
        operation, route = VARIANTS.get(name) or OPERATIONS[name], ROUTES[name]
        about = RouteDoc(
            name=name,
            tag=operation.verb.partition(".")[0],
            summary=operation.summary,
            note=f"Scopes: {', '.join(operation.scopes or ()) or 'none'}.",
            request=operation.request,
            query=special.query,
            reply=operation.reply,
            status=route.status,
            produces=special.produces,
            headers=special.headers,
        )
        yield route.method, route.path, about


def _described(method: str, path: str, about: RouteDoc, schemas: dict[str, Any]) -> dict[str, Any]:
    request = schemas[about.request.__name__]
    names = re.findall(r"{(\w+)}", path)
    asked = schemas[about.query.__name__] if about.query else request if method != "POST" else {}
    parameters = [*_parameters(names, {**request, **asked} if about.query else request, asked), *about.headers]
    found: dict[str, Any] = {
        "operationId": about.name,
        "tags": [about.tag],
        "summary": about.summary,
        "description": about.note,
        "security": _security(about),
        "parameters": [*parameters, _KEY] if method == "POST" else parameters,
        "responses": _responses(about),
    }
    if method == "POST":
        found["requestBody"] = _body(request, names)
    return found


def _security(about: RouteDoc) -> list[dict[str, list[str]]]:
    if about.signed:
        return [{"signature": []}]
    return [{"bearer": []}, *([{}] if about.open_to_local else [])]


def _specified(path: str, name: str, tag: str, summary: str) -> dict[str, Any]:
    """A route whose request and reply another specification describes."""
    return {
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        "security": [{"bearer": []}, {}],
        "parameters": [
            _parameter(parameter, "path", {"type": "string", "description": "The name in the path."}, required=True)
            for parameter in re.findall(r"{(\w+)}", path)
        ],
        "responses": {"200": {"description": "Done.", "content": _ANY_OBJECT}},
    }


def _parameters(names: list[str], request: dict[str, Any], asked: dict[str, Any]) -> Iterable[dict[str, Any]]:
    properties = request.get("properties", {})
    for name in names:
        yield _parameter(name, "path", properties[name], required=True)
    for name, schema in asked.get("properties", {}).items():
        if name not in names:
            yield _parameter(name, "query", schema, required=name in asked.get("required", ()))


def _parameter(name: str, place: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    about = {"description": schema["description"]} if "description" in schema else {}
    rest = {key: value for key, value in schema.items() if key != "description"}
    return {"name": name, "in": place, "required": required, **about, "schema": rest}


def _body(request: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The request without the fields of the path."""
    properties = {name: schema for name, schema in request.get("properties", {}).items() if name not in names}
    required = [name for name in request.get("required", ()) if name not in names]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {"application/json": {"schema": schema}}}


def _responses(about: RouteDoc) -> dict[str, Any]:
    responses: dict[str, Any] = {code: {"$ref": f"#/components/responses/{code}"} for code in _FAILURES}
    if about.name == "debug_session":
        responses["501"] = _failure("no debugger is attached")
    schema = {"$ref": _REFERENCE.format(model=about.reply.__name__)} if about.reply else {}
    content = {kind: {"schema": schema} if kind == JSON else {} for kind in about.produces}
    responses[str(about.status)] = {"description": "Done.", "content": content}
    if _RANGE in about.headers:
        responses["206"] = {"description": "A range of it.", "content": content}
        responses["416"] = _failure("the range starts after the end")
    return dict(sorted(responses.items()))


def _failure(about: str) -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(model=ErrorReply.__name__)}
    return {"description": f"{about[0].upper()}{about[1:]}.", "content": {JSON: {"schema": schema}}}


def _probe(path: str, summary: str) -> dict[str, Any]:
    kind = "text/plain" if path == "/metrics" else JSON
    responses: dict[str, Any] = {"200": {"description": "The check succeeded.", "content": {kind: {}}}}
    if path == "/readyz":
        responses["503"] = {"description": "The check failed.", "content": {kind: {}}}
    if path == "/metrics":
        responses["401"] = {"description": "No valid token.", "content": {JSON: {}}}
    return {"operationId": f"get_{path[1:]}", "tags": ["health"], "summary": summary, "responses": responses}
