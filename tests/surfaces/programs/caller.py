"""Calls a server as another user, without a token; prints what came of each call as JSON.

Takes the user's number and a list of calls on stdin. It becomes that user after its imports, which may lie in a home
folder that is closed to others, and before its first socket.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - loaded on demand otherwise
import http.client
import json
import os
import socket
import sys
from typing import Any

import grpc
import grpc._channel  # loaded on demand otherwise

from debug_server.kanban import kanban_pb2, kanban_pb2_grpc

SECONDS = 100


def over_http(host: str, port: int, method: str, path: str, body: Any = None) -> str:
    """The status."""
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Host": "localhost", "Content-Type": "application/json"})
    answer = connection.getresponse()
    return f"{answer.status} {answer.read().decode()}"


def over_unix(path: str) -> str:
    """Whether the socket can be opened at all."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError as error:
            return type(error).__name__
    return "connected"


def over_grpc(target: str, service: str, method: str, fields: dict[str, Any]) -> str:
    """The status of one of the kanban calls."""
    names = {"AddRepo": "AddRepoRequest", "Write": "WriteRequest", "ListRepos": "ListReposRequest"}
    if "repo" in fields:
        fields = {**fields, "repo": kanban_pb2.RepoEntry(**fields["repo"])}
    with grpc.insecure_channel(target, options=(("grpc.enable_http_proxy", 0),)) as channel:
        call = getattr(getattr(kanban_pb2_grpc, f"{service}Stub")(channel), method)
        try:
            call(getattr(kanban_pb2, names[method])(**fields), timeout=SECONDS)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def orphaned(host: str, port: int, path: str, body: Any) -> str:
    """Send a request and close at once."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    )
    with socket.create_connection((host, port), timeout=SECONDS) as connection:
        connection.sendall(head.encode() + b"\r\n" + data)
    return "sent"


if __name__ == "__main__":
    if (uid := int(sys.argv[1])) != os.getuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    kinds: dict[str, Any] = {"http": over_http, "unix": over_unix, "grpc": over_grpc, "orphaned": orphaned}
    print(json.dumps([kinds[kind](*words) for kind, *words in json.load(sys.stdin)]))  # noqa: T201
