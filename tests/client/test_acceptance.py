"""Both clients against a real server: everything a user does, and what comes back when it cannot be done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.errors import (
    AccessError,
    DebuggerUnavailableError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    PatchApplicationError,
    UnavailableError,
    UnknownCommitError,
)
from debug_server.model import Limits
from tests.servers import ServerProcess

PATCH = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-hello\n+patched\n"
SCRIPT = "cat a.txt; printf '\\377\\n' >&2; echo new > new.txt; exit 3"


def test_a_session_from_open_to_close(client: DebugServerClient, tmp_path: Path) -> None:
    """Open with a patch, run, follow, read, diff, artifacts, fork, reset, close: the bytes and the facts are right."""
    session = client.create_session("project", "main", patch=PATCH, metadata={"issue": 7})
    assert session.metadata["issue"] == 7
    command = client.submit_command(
        session.id, ["sh", "-c", SCRIPT], artifacts=["new*"], limits=Limits(wall_seconds=60)
    )
    pieces = list(client.follow_log(command.id))
    assert b"".join(piece.data for piece in pieces if piece.stream == "stdout") == b"patched\n"
    assert b"".join(piece.data for piece in pieces if piece.stream == "stderr") == b"\xff\n"
    ended = client.wait_command(command.id)
    assert (ended.status, ended.exit_code, ended.exit_reason) == ("failed", 3, "nonzero_exit")
    page = client.read_log(command.id, offset=1)
    assert (page.next_offset, page.ended) == (ended.log_bytes, True)
    assert b"".join(piece.data for piece in page.pieces) == b"".join(piece.data for piece in pieces)[1:]
    assert list(client.stream_session_logs(session.id, follow=True)) == pieces
    assert [item.id for item in client.list_commands(session.id)] == [command.id]
    assert client.session_patch(session.id).decode() == client.diff_session(session.id).patch
    (artifact,) = [item for item in client.list_artifacts(session.id) if item.kind != "log"]
    assert client.get_artifact(session.id, artifact.id) == artifact
    assert client.download_artifact(session.id, artifact.id, tmp_path / "got").read_text() == "new\n"
    (fork,) = client.fork_session(session.id)
    client.reset_session(session.id)
    assert "new.txt" not in client.diff_session(session.id).patch
    assert "new.txt" in client.diff_session(fork.id).patch
    for item, status in ((session, "completed"), (fork, "cancelled")):  # the fork never had a command
        client.close_session(item.id)
        assert client.get_session(item.id).status == status


def test_a_command_is_fed_signalled_and_cancelled(client: DebugServerClient) -> None:
    """stdin reaches the command once, a signal its first process, and cancel ends its tree."""
    session = client.open_session("project", "main")
    fed = client.submit_command(session.id, ["cat"], stdin=True)
    followed = client.follow_log(fed.id)
    _await_running(client, fed.id)
    for _ in range(2):
        client.write_stdin(fed.id, b"once\n", write_id="first")
    client.write_stdin(fed.id, close=True)
    assert b"".join(piece.data for piece in followed) == b"once\n"
    signalled = client.submit_command(session.id, ["sleep", "600"])
    _await_running(client, signalled.id)
    client.signal_command(signalled.id, 15)
    assert client.wait_command(signalled.id).exit_reason == "signaled"
    cancelled = client.submit_command(session.id, ["sleep", "600"])
    assert client.cancel_command(cancelled.id).status == "cancelled"
    client.close_session(session.id)


def _await_running(client: DebugServerClient, command_id: int) -> None:
    for event in client.follow_events(command_id=command_id):
        if event.kind == "command.started":
            return


def test_a_run_and_its_events(client: DebugServerClient) -> None:
    """One request opens, runs and closes; its events can be read and followed from any number on."""
    run = client.start_run("project", "main", ["true"])
    assert client.wait_command(run.command.id).status == "succeeded"
    page = client.read_events(session_id=run.session.id, limit=2)
    live = client.follow_events(session_id=run.session.id)
    assert [next(live).seq for _ in page] == [event.seq for event in page]
    rest = client.follow_events(after=page.next_after, session_id=run.session.id)
    assert next(rest).seq > page.next_after


def test_operators_verbs(client: DebugServerClient) -> None:
    """Health, leases, workers and tokens answer; a token's secret is shown once and is good until it is revoked."""
    assert client.health().ok
    assert client.who_am_i().scopes == ["admin"]
    assert isinstance(client.list_leases().items, list)
    assert client.list_workers().items == []
    made = client.create_token("reader", scopes=["sessions:read"], expires_in=3600)
    assert made.token
    listed = {item.id: item for item in client.list_tokens()}
    assert listed[made.id].token is None
    with DebugServerClient(base_url=client.base_url, token=made.token) as reader:
        assert reader.who_am_i().name == "reader"
        with pytest.raises(ForbiddenError, match="sessions:write"):
            reader.open_session("project", "main")
        client.revoke_token(made.id)
        with pytest.raises(AccessError):
            reader.list_sessions()


def test_errors_come_back_as_classes(client: DebugServerClient) -> None:
    """What the server refuses is raised as the class it was there, with the server's sentence."""
    with pytest.raises(NotFoundError, match="there is no session 987654"):
        client.get_session(987654)
    with pytest.raises(UnknownCommitError):
        client.open_session("project", "no-such-branch")
    with pytest.raises(PatchApplicationError):
        client.open_session("project", "main", patch=PATCH.replace("-hello", "-other"))
    with pytest.raises(InvalidInputError, match="argv"):
        client.submit_command(1, [])
    session = client.open_session("project", "main")
    with pytest.raises(DebuggerUnavailableError):
        client.send_debug_action(session.id, action="open", payload={"port": 1})
    with pytest.raises(NotFoundError):
        list(client.follow_log(987654))
    client.close_session(session.id)


def test_a_text_is_not_taken_for_a_list(client: DebugServerClient, server: ServerProcess) -> None:
    """A text as argv, or where a list of strings belongs, is refused by both clients and named; nothing is sent."""
    session = client.open_session("project", "main")
    attempts: list[Callable[[], object]] = [
        lambda: client.submit_command(session.id, "ls -l"),
        lambda: client.start_run("project", "main", "ls -l"),
        lambda: asyncio.run(_awaited_text(server, session.id)),
    ]
    for send in attempts:
        with pytest.raises(InvalidInputError, match=r"'ls -l' is a string: .*\[\"sh\", \"-c\", line\]"):
            send()
    others: dict[str, Callable[[], object]] = {
        "commands": lambda: client.open_session("project", "main", commands="ls -l"),
        "artifacts": lambda: client.submit_command(session.id, ["true"], artifacts="*.txt"),
        "require": lambda: client.submit_command(session.id, ["true"], require="memory"),
        "manifests": lambda: client.start_run("project", "main", ["true"], manifests="requirements.txt"),
        "scopes": lambda: client.create_token("letters", scopes="admin"),
    }
    for name, call in others.items():
        with pytest.raises(InvalidInputError, match=rf"{name} '.*' is a string: write a list"):
            call()
    assert client.list_commands(session.id).items == []
    client.close_session(session.id)


async def _awaited_text(server: ServerProcess, session_id: int) -> None:
    async with AsyncDebugServerClient(base_url=server.base_url, token=server.token) as client:
        await client.submit_command(session_id, "ls -l")


def test_a_target_that_cannot_be_written_is_named(client: DebugServerClient, tmp_path: Path) -> None:
    """A download into a folder that does not exist says so, and leaves nothing."""
    run = client.start_run("project", "main", ["echo", "x"])
    client.wait_command(run.command.id)
    (log,) = client.list_artifacts(run.session.id)
    with pytest.raises(InvalidInputError, match="nowhere"):
        client.download_artifact(run.session.id, log.id, tmp_path / "nowhere" / "file")
    assert list(tmp_path.iterdir()) == []


def test_wrong_addresses_and_tokens_are_refused_early() -> None:
    """An address without a scheme and a token with a line break are told before anything is sent."""
    with pytest.raises(InvalidInputError, match="http://"):
        DebugServerClient(base_url="127.0.0.1:8000", token="t")
    with pytest.raises(InvalidInputError, match="token"):
        DebugServerClient(base_url="http://127.0.0.1:8000", token="a\nb")


def test_nobody_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never answers is an UnavailableError that names the address, after a few attempts."""
    monkeypatch.setattr("debug_server.client.exchange.ATTEMPTS", 2)
    with (
        DebugServerClient(base_url="http://127.0.0.1:1", token="t") as client,
        pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:1"),
    ):
        client.list_sessions()


async def _awaited_session(server: ServerProcess, target: Path) -> None:
    async with AsyncDebugServerClient(base_url=server.base_url, token=server.token) as client:
        session = await client.create_session("project", "main", patch=PATCH)
        command = await client.submit_command(session.id, ["sh", "-c", SCRIPT], artifacts=["new*"])
        pieces = [piece async for piece in client.follow_log(command.id)]
        assert b"patched\n" in [piece.data for piece in pieces]
        assert (await client.wait_command(command.id)).exit_code == 3
        assert [piece async for piece in client.stream_session_logs(session.id)] == pieces
        page = await client.read_log(command.id, limit=1)
        assert page.pieces == pieces[: len(page.pieces)]
        assert b"new.txt" in await client.session_patch(session.id)
        async for event in client.follow_events(session_id=session.id):
            assert event.session_id == session.id
            break
        (artifact,) = [item for item in await client.list_artifacts(session.id) if item.kind != "log"]
        assert (await client.download_artifact(session.id, artifact.id, target)).read_text() == "new\n"
        with pytest.raises(NotFoundError):
            await client.get_session(987654)
        await client.close_session(session.id)


def test_the_awaited_client_does_the_same(server: ServerProcess, repository: Path, tmp_path: Path) -> None:
    """The asynchronous twin opens, runs, follows, downloads, refuses and closes as the other one does."""
    asyncio.run(_awaited_session(server, tmp_path / "got"))
