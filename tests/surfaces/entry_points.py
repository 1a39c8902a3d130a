"""Every route, WebSocket, rpc, tool and resource, read from the surfaces' own tables: a new one is here at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
from pydantic import BaseModel
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from debug_server import messages as m
from debug_server.messages import OPERATIONS, ROUTES, VARIANTS
from debug_server.surfaces.grpc.schema import SERVICE, rpc, rpc_name
from debug_server.surfaces.http.openapi import OVERRIDES
from debug_server.surfaces.mcp.refusal import ERROR_KEY
from debug_server.surfaces.mcp.resources import RESOURCES
from debug_server.surfaces.mcp.tools import TOOLS, Tool
from tests.servers import ServerProcess

OK = "ok"
SECONDS = 100.0
# Values for required fields. A request that requires another field fails here until the field is added.
REQUIRED_FIELDS: dict[str, Any] = {
    "token_id": 10**6,
    "name": "project",
    "remote_url": "/none",
    "repository": "none",
    "commit_sha": "main",
    "argv": ["true"],
    "signal": 1,
    "write_id": "1",
    "worker": "none",
}
# A caller with access gets an error for this at once, instead of waiting for events or removing what others need.
INVALID_FIELDS: dict[str, dict[str, Any]] = {"follow_events": {"limit": 10**6}, "remove_repository": {"name": "none"}}
SOCKETS = {
    "/commands/{command_id}/log": "follow_log",
    "/sessions/{session_id}/logs": "follow_log",
    "/sessions/{session_id}/debug": "debug_session",
}
FETCHES = {"FetchArtifact": "get_artifact", "FetchDiff": "diff_session"}
ADDRESSES = {"command_log": "read_log", "artifact": "get_artifact"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """The session, command and artifact that a call names."""

    session_id: int
    command_id: int
    artifact_id: int

    def fields(self, request: type[m.Request], operation: str) -> dict[str, Any]:
        """The required fields of a request, and an invalid one where the call would wait otherwise."""
        known = {**REQUIRED_FIELDS, **{name: getattr(self, name) for name in self.__slots__}}
        needed = [name for name, field in request.model_fields.items() if field.is_required()]
        return {name: known[name] for name in needed} | INVALID_FIELDS.get(operation, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """One way to call an operation; ``call`` returns the code of an error, or OK."""

    name: str
    operations: tuple[str, ...]  # the scopes of all of them are needed
    request: type[m.Request]
    call: Callable[[Connections, str | None, Ids], str]
    always_known: bool = False  # needs a token even where the operation does not

    @property
    def scopes(self) -> frozenset[str] | None:
        """The scopes that a token needs; None: no token is needed."""
        found = [OPERATIONS[name].scopes for name in self.operations]
        if None in found and not self.always_known:
            return None
        return frozenset(scope for scopes in found for scope in scopes or ())

    @property
    def owned(self) -> bool:
        """Whether the request names something that has an owner."""
        return bool({"session_id", "command_id"} & set(UNKNOWN_IDS.fields(self.request, self.operations[0])))


UNKNOWN_IDS = Ids(session_id=10**6, command_id=10**6, artifact_id=10**6)


class Connections:
    """Connections to one server, without the SDK."""

    def __init__(self, process: ServerProcess) -> None:
        self.port = process.port
        self.http = httpx.Client(base_url=process.base_url, timeout=SECONDS)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{process.grpc_port}")

    def close(self) -> None:
        """Close the connections."""
        self.http.close()
        self.channel.close()


def bearer(token: str | None) -> dict[str, str]:
    """The header of a token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def rest_entry_points() -> list[EntryPoint]:
    """Every route."""
    return [_rest(name, OVERRIDES[name].query if name in OVERRIDES else None) for name in ROUTES]


def _rest(name: str, query: type[BaseModel] | None = None) -> EntryPoint:
    route, operation = ROUTES[name], VARIANTS.get(name) or OPERATIONS[name]
    named = set(route.names)
    request = operation.request
    if query is not None and issubclass(query, m.Request) and named and named <= set(query.model_fields):
        request = query

    def call(server: Connections, token: str | None, ids: Ids) -> str:
        fields = ids.fields(request, operation.name)
        fields |= {name: getattr(ids, name) for name in named - fields.keys()}  # optional, but named by this path
        path = re.sub(r"{(\w+)}", lambda match: str(fields[match[1]]), route.path)
        rest = {name: value for name, value in fields.items() if name not in named}
        more: dict[str, Any] = {"json": rest} if route.method == "POST" else {"params": rest}
        with server.http.stream(route.method, path, headers=bearer(token), **more) as response:
            if response.is_success:
                return OK  # a stream is left at once
            return str(json.loads(response.read())["error"]["code"])

    return EntryPoint(name=f"{route.method} {route.path}", operations=(operation.name,), request=request, call=call)


def socket_entry_points() -> list[EntryPoint]:
    """Every WebSocket."""
    return [_socket(path, operation) for path, operation in SOCKETS.items()]


def _socket(path: str, operation: str) -> EntryPoint:
    request: type[m.Request] = m.SessionRef if "session_id" in path else m.CommandRef

    def call(server: Connections, token: str | None, ids: Ids) -> str:
        fields = ids.fields(request, operation)
        url = f"ws://127.0.0.1:{server.port}" + re.sub(r"{(\w+)}", lambda match: str(fields[match[1]]), path)
        try:
            with connect(url, additional_headers=bearer(token), open_timeout=SECONDS, close_timeout=0.1) as socket:
                socket.recv(timeout=SECONDS)
        except ConnectionClosed as closed:
            assert closed.rcvd is not None and closed.rcvd.code in (1000, 1008), closed
            return OK if closed.rcvd.code == 1000 else closed.rcvd.reason.partition(":")[0]
        return OK

    return EntryPoint(name=f"WS {path}", operations=(operation,), request=request, call=call)


def grpc_entry_points() -> list[EntryPoint]:
    """Every rpc."""
    operations = {rpc_name(name): name for name in OPERATIONS} | FETCHES
    return [_grpc(name, operations[name]) for name in SERVICE.methods_by_name]


def _grpc(name: str, operation: str) -> EntryPoint:
    called, request = rpc(name), OPERATIONS[operation].request

    def call(server: Connections, token: str | None, ids: Ids) -> str:
        message = called.request(**ids.fields(request, operation))
        kinds = (called.request.SerializeToString, called.reply.FromString)
        metadata = [(key.lower(), value) for key, value in bearer(token).items()]
        try:
            if called.streams:
                for _ in server.channel.unary_stream(called.path, *kinds)(message, metadata=metadata, timeout=SECONDS):
                    pass
            else:
                server.channel.unary_unary(called.path, *kinds)(message, metadata=metadata, timeout=SECONDS)
        except grpc.RpcError as error:
            return str(dict(error.trailing_metadata())["code"])
        return OK

    return EntryPoint(name=f"rpc {name}", operations=(operation,), request=request, call=call)


def mcp_entry_points() -> list[EntryPoint]:
    """Every tool, and every kind of resource."""
    return [*map(_tool, TOOLS.values()), *(_resource(item.name, item.template.template) for item in RESOURCES)]


def _tool(tool: Tool) -> EntryPoint:
    def call(server: Connections, token: str | None, ids: Ids) -> str:
        arguments = ids.fields(tool.request, tool.operations[0])
        return _mcp(server, token, "tools/call", {"name": tool.name, "arguments": arguments})

    return EntryPoint(
        name=f"tool {tool.name}", operations=tool.operations, request=tool.request, call=call, always_known=True
    )


def _resource(name: str, template: str) -> EntryPoint:
    request = OPERATIONS[ADDRESSES[name]].request

    def call(server: Connections, token: str | None, ids: Ids) -> str:
        uri = re.sub(r"{(\w+)}", lambda match: str(getattr(ids, match[1])), re.sub(r"{\?.*}", "", template))
        return _mcp(server, token, "resources/read", {"uri": uri})

    return EntryPoint(
        name=f"resource {name}", operations=(ADDRESSES[name],), request=request, call=call, always_known=True
    )


def _mcp(server: Connections, token: str | None, method: str, params: Mapping[str, Any]) -> str:
    accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = server.http.post("/mcp?toolsets=all", json=body, headers={**accept, **bearer(token)})
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        (text,) = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    told = json.loads(text)
    assert "result" in told or "error" in told, told
    if "error" in told:
        return str(told["error"]["data"]["code"])
    return str(told["result"]["_meta"][ERROR_KEY]["code"]) if told["result"].get("isError") else OK


ENTRY_POINTS: dict[str, Callable[[], list[EntryPoint]]] = {
    "rest": rest_entry_points,
    "websocket": socket_entry_points,
    "grpc": grpc_entry_points,
    "mcp": mcp_entry_points,
}
