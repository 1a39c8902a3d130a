"""Authorization of every operation through every surface: each scope, the owner, another token and no token."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from websockets.sync.client import connect

from debug_server.client import DebugServerClient
from debug_server.messages import ADMIN, OPERATIONS, SCOPES
from tests.repositories import make_repository
from tests.servers import ServerProcess, serving
from tests.surfaces.entry_points import ENTRY_POINTS, SECONDS, UNKNOWN_IDS, Connections, EntryPoint, Ids

PLAIN = tuple(scope for scope in SCOPES if scope != ADMIN)
REFUSED = {"unauthorized", "forbidden", "internal_error"}
# Operations that a surface does not have.
EXCEPTIONS = {
    "rest": set(),
    "websocket": set(OPERATIONS) - {"follow_log", "debug_session"},
    "grpc": set(),
    "mcp": {"follow_log", "follow_events"},
}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server with all of its surfaces."""
    with serving(tmp_path_factory.mktemp("server"), grpc=True) as running:
        yield running


@pytest.fixture(scope="module")
def admin(process: ServerProcess) -> Iterator[DebugServerClient]:
    """Makes tokens, and knows a repository."""
    with DebugServerClient(base_url=process.base_url, token=process.token) as client:
        client.register_repository("project", str(make_repository(process.root / "project")))
        yield client


@pytest.fixture(scope="module")
def server(process: ServerProcess) -> Iterator[Connections]:
    """Connections to it."""
    found = Connections(process)
    yield found
    found.close()


def holding(admin: DebugServerClient, *scopes: str) -> str:
    """A new token's secret."""
    secret = admin.create_token("+".join(scopes), scopes=scopes).token
    assert secret is not None
    return secret


@pytest.mark.parametrize("surface", ENTRY_POINTS)
def test_every_operation_has_an_entry_point(surface: str) -> None:
    """The tests below call each operation of the table, through each surface that has it."""
    through = {name for entry in ENTRY_POINTS[surface]() for name in entry.operations}
    assert through == set(OPERATIONS) - EXCEPTIONS[surface]


@pytest.mark.parametrize("surface", ENTRY_POINTS)
def test_every_operation_and_every_scope(server: Connections, admin: DebugServerClient, surface: str) -> None:
    """Without a valid token: unauthorized. With any scope of the operation missing: forbidden. With all: allowed."""
    without = {"nobody": None, "unknown": "nonsense"}
    singles = {scope: holding(admin, scope) for scope in SCOPES}
    lacking = {scope: holding(admin, *(other for other in PLAIN if other != scope)) for scope in PLAIN}
    full = holding(admin, *PLAIN)
    wrong = []
    for entry in ENTRY_POINTS[surface]():
        needed = entry.scopes
        for name, token in without.items():
            wrong += _differs(server, entry, name, token, "unauthorized" if needed is not None else None)
        for name, token in singles.items():
            allowed = needed is None or name == ADMIN or needed <= {name}
            wrong += _differs(server, entry, name, token, None if allowed else "forbidden")
        for scope in needed or ():
            if scope != ADMIN:
                wrong += _differs(server, entry, f"all but {scope}", lacking[scope], "forbidden")
        wrong += _differs(server, entry, "all but admin", full, "forbidden" if ADMIN in (needed or ()) else None)
    assert wrong == []


def _differs(server: Connections, entry: EntryPoint, who: str, token: str | None, expected: str | None) -> list[str]:
    """What is wrong with the answer; ``expected`` None: whatever the operation itself says."""
    told = entry.call(server, token, UNKNOWN_IDS)
    right = told not in REFUSED if expected is None else told == expected
    return [] if right else [f"{entry.name} for {who}: {told}, not {expected or 'allowed'}"]


@pytest.mark.parametrize("surface", ENTRY_POINTS)
def test_only_the_owner_and_admins_find_a_session(server: Connections, admin: DebugServerClient, surface: str) -> None:
    """Another token with the same scopes gets not_found for all that belongs to a session; owner and admins get it."""
    owner, other = holding(admin, *PLAIN), holding(admin, *PLAIN)
    with DebugServerClient(base_url=admin.base_url, token=owner) as client:
        session = client.open_session("project", "main").id
        command = client.submit_command(session, ["echo", "hello"]).id
        client.wait_command(command)
        artifact = client.list_artifacts(session).items[0].id
    ids = Ids(session_id=session, command_id=command, artifact_id=artifact)
    wrong = []
    entry_points = [entry for entry in ENTRY_POINTS[surface]() if entry.owned]
    assert entry_points
    for entry in sorted(entry_points, key=lambda item: "close_session" in item.operations):  # it ends the rest
        if (told := entry.call(server, other, ids)) != "not_found":
            wrong.append(f"{entry.name} for another: {told}")
        for name, token in (("its owner", owner), ("an admin", holding(admin, ADMIN))):
            if (told := entry.call(server, token, ids)) in REFUSED | {"not_found"}:
                wrong.append(f"{entry.name} for {name}: {told}")
    assert wrong == []


def test_lists_and_events_show_only_the_caller_s_own(process: ServerProcess, admin: DebugServerClient) -> None:
    """Sessions and events of others are left out of lists, also when they are asked for by number."""
    owner, other = holding(admin, *PLAIN), holding(admin, *PLAIN)
    with (
        DebugServerClient(base_url=process.base_url, token=owner) as ours,
        DebugServerClient(base_url=process.base_url, token=other) as theirs,
    ):
        session = ours.open_session("project", "main").id
        assert [item.id for item in ours.list_sessions()] == [session]
        assert {item.session_id for item in ours.read_events(session_id=session)} == {session}
        assert theirs.list_sessions().items == []
        assert theirs.read_events(session_id=session).items == []
        assert [item for item in theirs.read_events(limit=1000) if item.session_id == session] == []
        assert session in [item.id for item in admin.list_sessions()]
        ours.close_session(session)


def test_a_token_in_the_query_is_for_websockets_only(
    server: Connections, process: ServerProcess, admin: DebugServerClient
) -> None:
    """A browser's WebSocket may carry its token in the query; a request may not."""
    command = admin.start_run("project", "main", ["echo", "hello"]).command.id
    admin.wait_command(command)
    url = f"ws://127.0.0.1:{server.port}/commands/{command}/log?token={process.token}"
    with connect(url, open_timeout=SECONDS) as socket:
        assert "hello" in str(socket.recv(timeout=SECONDS))
    assert server.http.get("/whoami", params={"token": process.token}).status_code == 401
