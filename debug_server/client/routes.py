"""Where each operation is in the HTTP API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

_NAME = re.compile(r"{(\w+)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation's method and path; fields that the path does not name go into the query or the body."""

    method: str
    path: str
    keyed: bool = False  # repeating it is safe only under an idempotency key

    def split(self, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The path, and the fields that are left."""
        named = set(_NAME.findall(self.path))
        path = _NAME.sub(lambda match: quote(str(fields[match[1]]), safe=""), self.path)
        return path, {name: value for name, value in fields.items() if name not in named}


def _get(path: str) -> Route:
    return Route(method="GET", path=path)


def _post(path: str) -> Route:
    return Route(method="POST", path=path, keyed=True)


def _again(path: str) -> Route:
    """A POST that may be repeated as it is."""
    return Route(method="POST", path=path)


def _delete(path: str) -> Route:
    return Route(method="DELETE", path=path)


ROUTES = {
    "register_repository": _post("/repository/init"),
    "get_repository": _get("/repository/{name}"),
    "list_repositories": _get("/repository"),
    "open_session": _post("/sessions"),
    "get_session": _get("/sessions/{session_id}"),
    "list_sessions": _get("/sessions"),
    "fork_session": _post("/sessions/{session_id}/fork"),
    "reset_session": _post("/sessions/{session_id}/reset"),
    "diff_session": _get("/sessions/{session_id}/diff"),
    "close_session": _delete("/sessions/{session_id}"),
    "debug_session": _post("/sessions/{session_id}/debug"),
    "submit_command": _post("/sessions/{session_id}/commands"),
    "list_commands": _get("/sessions/{session_id}/commands"),
    "start_run": _post("/runs"),
    "get_command": _get("/commands/{command_id}"),
    "wait_command": _get("/commands/{command_id}/wait"),
    "cancel_command": _again("/commands/{command_id}/cancel"),
    "signal_command": _post("/commands/{command_id}/signal"),
    "write_stdin": _again("/commands/{command_id}/stdin"),
    "read_log": _get("/commands/{command_id}/log.ndjson"),
    "follow_log": _get("/commands/{command_id}/log.ndjson"),
    "list_artifacts": _get("/sessions/{session_id}/artifacts"),
    "get_artifact": _get("/sessions/{session_id}/artifacts/{artifact_id}/info"),
    "read_events": _get("/events"),
    "follow_events": _get("/events/stream"),
    "list_leases": _get("/leases"),
    "list_workers": _get("/workers"),
    "restart_worker": _post("/workers/{worker}/restart"),
    "reset_worker": _again("/workers/{worker}/reset"),
    "stop_worker": _again("/workers/{worker}/stop"),
    "create_token": _post("/auth/tokens"),
    "list_tokens": _get("/auth/tokens"),
    "revoke_token": _delete("/auth/tokens/{token_id}"),
    "who_am_i": _get("/whoami"),
    "health": _get("/readyz"),
}

# Not operations of their own: the bytes behind one.
FILES = {
    "artifact_file": _get("/sessions/{session_id}/artifacts/{artifact_id}"),
    "session_patch": _get("/sessions/{session_id}/diff"),
}
