"""Who may do what: every operation x every scope x owner, other and nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError

from debug_server.service import OPERATIONS
from debug_server.service.caller import SCOPES
from debug_server.surfaces.http.openapi import SPECIALS
from debug_server.surfaces.http.routes import ROUTES, Route
from tests.surfaces.http.serving import Served

ALL = [*ROUTES, *(item.route for item in SPECIALS)]
SOCKETS = {
    "/commands/{command_id}/log": "follow_log",
    "/sessions/{session_id}/logs": "follow_log",
    "/sessions/{session_id}/debug": "debug_session",
}
BODIES = {
    "register_repository": {"name": "repo", "remote_url": "/x"},
    "open_session": {"repository": "none", "commit": "main"},
    "start_run": {"repository": "none", "commit": "main", "argv": ["true"]},
    "submit_command": {"argv": ["true"]},
    "signal_command": {"signal": 1},
    "write_stdin": {"write_id": "1"},
    "create_token": {"name": "made"},
}
# What belongs to nobody in particular; everything else is its owner's and the admins'.
UNOWNED = {name for name in OPERATIONS if name not in {"fork_session", "reset_session"} and "session" not in name}
UNOWNED -= {name for name in OPERATIONS if "command" in name or "log" in name or "artifact" in name}
UNOWNED |= {"open_session", "list_sessions"}
UNOWNED -= {"write_stdin"}


@dataclass(frozen=True, slots=True)
class Ids:
    """What the paths are filled with."""

    session: int
    command: int
    artifact: int


UNKNOWN = Ids(10**6, 10**6, 10**6)


def ask(client: httpx.Client, route: Route, ids: Ids) -> int:
    """The status of one request; streams are left at once."""
    body = BODIES.get(route.operation, {}) if route.method == "POST" else None
    with client.stream(route.method, fill(route.path, ids), json=body) as response:
        return response.status_code


def fill(path: str, ids: Ids) -> str:
    values = {"session_id": ids.session, "command_id": ids.command, "artifact_id": ids.artifact}
    values |= {"token_id": 10**6}
    return re.sub(r"{(\w+)}", lambda match: str(values.get(match[1], "none")), path)


def described(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.fixture(scope="module")
def holders(shared: Served) -> Iterator[dict[str, httpx.Client]]:
    """A client for each scope alone, one with none that is known, one without a token."""
    found = {scope: shared.client([scope]) for scope in SCOPES}
    found["unknown"] = httpx.Client(base_url=shared.url, headers={"Authorization": "Bearer nonsense"})
    found["nobody"] = httpx.Client(base_url=shared.url)
    yield found
    for client in found.values():
        client.close()


@pytest.mark.parametrize("route", ALL, ids=described)
def test_every_operation_and_every_scope(shared: Served, holders: dict[str, httpx.Client], route: Route) -> None:
    """Without a token 401; without every scope of the operation 403; with them, whatever the operation says."""
    needed = set(OPERATIONS[route.operation].scopes or ())
    for name, client in holders.items():
        status = ask(client, route, UNKNOWN)
        if name in ("unknown", "nobody"):
            assert status == 401, name
        elif name == "admin" or needed <= {name}:
            assert status not in (401, 403, 500), name
        else:
            assert status == 403, name


@pytest.mark.parametrize("path", SOCKETS)
def test_sockets_refuse_with_1008(shared: Served, holders: dict[str, httpx.Client], path: str) -> None:
    """A WebSocket without a token, without a scope or of an unknown id is closed with 1008."""
    for name, client in holders.items():
        if "Authorization" in client.headers:
            with pytest.raises(ConnectionClosedError) as closed, shared.socket(fill(path, UNKNOWN), client) as socket:
                socket.recv(timeout=10)
            needed = set(OPERATIONS[SOCKETS[path]].scopes or ())
            code = "unauthorized" if name == "unknown" else "forbidden"
            code = "not_found" if name == "admin" or needed <= {name} else code
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason.partition(":")[0]) == (1008, code), name


@pytest.mark.parametrize("route", [route for route in ALL if route.operation not in UNOWNED], ids=described)
def test_another_s_things_do_not_exist(things: tuple[Served, Ids, httpx.Client, httpx.Client], route: Route) -> None:
    """With every scope but admin, another's session, command, log or artifact is 404; its owner's is not."""
    _, ids, owner, other = things
    assert ask(other, route, ids) == 404
    if route.operation not in ("close_session",):
        assert ask(owner, route, ids) != 404


@pytest.fixture(scope="module")
def things(shared: Served) -> Iterator[tuple[Served, Ids, httpx.Client, httpx.Client]]:
    """An owner's session with a command and an artifact, and somebody else with the same scopes."""
    scopes = [scope for scope in SCOPES if scope != "admin"]
    owner, other = shared.client(scopes), shared.client(scopes)
    session = shared.session(owner)
    command = shared.run(session, "echo", "hello")
    artifact = owner.get(f"/sessions/{session}/artifacts").json()["items"][0]["id"]
    yield shared, Ids(session, command, artifact), owner, other
    owner.close()
    other.close()


def test_lists_and_events_show_one_s_own(things: tuple[Served, Ids, httpx.Client, httpx.Client]) -> None:
    """Sessions and events of others are left out of lists; an admin sees all."""
    shared, ids, owner, other = things
    assert ids.session in [item["id"] for item in owner.get("/sessions").json()["items"]]
    assert other.get("/sessions").json()["items"] == []
    assert {item["session_id"] for item in owner.get("/events").json()["items"]} >= {ids.session}
    assert not [item for item in other.get("/events").json()["items"] if item["session_id"] == ids.session]
    assert ids.session in [item["id"] for item in shared.admin.get("/sessions").json()["items"]]


def test_a_token_in_the_query_is_for_websockets_only(things: tuple[Served, Ids, httpx.Client, httpx.Client]) -> None:
    """A browser's WebSocket may carry its token in the query; a request may not."""
    shared, ids, owner, _ = things
    secret = owner.headers["Authorization"].split()[1]
    nobody = httpx.Client(base_url=shared.url, headers={"Authorization": ""})
    with shared.socket(f"/commands/{ids.command}/log?token={secret}", nobody) as socket:
        assert "hello" in str(socket.recv(timeout=10))
    assert nobody.get("/whoami", params={"token": secret}).status_code == 401
