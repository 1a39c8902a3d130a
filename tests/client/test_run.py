"""``client.run``: a command to its end, also across lost servers."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.client.completed import Completed
from debug_server.errors import CommandFailedError, ConflictError, InvalidInputError, UnavailableError
from debug_server.model import Limits
from tests.repositories import make_repository
from tests.running import eventually
from tests.servers import ServerProcess, serving

SECONDS = 100.0


def test_a_command_that_succeeds(client: DebugServerClient) -> None:
    """Its output as text and as bytes, its times, and where it ran."""
    done = client.run(["sh", "-c", "printf 'gr\\303\\274n\\n'; printf '\\377' >&2"])
    assert (done.ok, done.exit_code, done.exit_reason, done.truncated) == (True, 0, "exited", False)
    assert (done.stdout, done.stderr, done.stderr_data) == ("grün\n", "�", b"\xff")
    assert done.seconds > 0 and done.check() is done
    assert client.get_command(done.command_id).session_id == done.session_id


def test_a_command_that_fails(client: DebugServerClient) -> None:
    """``check`` raises an error that says how it ended and the end of its output."""
    done = client.run(["sh", "-c", "echo 'the reason' >&2; exit 7"])
    assert (done.ok, done.exit_code) == (False, 7)
    with pytest.raises(CommandFailedError, match=r"status 7\nthe reason"):
        done.check()
    assert client.run(["sleep", "1000"], timeout=0.2).exit_reason == "timed_out"
    assert client.run(["sleep", "1000"], limits=Limits(wall_seconds=0.2)).exit_code is None
    late = client.run(["sleep", "1000"], limits={"wall_seconds": 0.2})
    assert repr(late) == (
        f"Completed(argv=('sleep', '1000'), command_id={late.command_id}, exit_code=None, exit_reason='timed_out')"
    )
    with pytest.raises(InvalidInputError, match="memory_bytes"):
        client.run(["true"], limits={"memory": 1 << 30})


def test_where_it_runs(client: DebugServerClient) -> None:
    """In a session, in a workspace of a repository, or in an empty folder."""
    session = client.open_session("project", "main").id
    client.run(["sh", "-c", "echo new > made"], session_id=session).check()
    assert client.run(["cat", "made"], session_id=session).stdout == "new\n"
    assert "made" not in client.run(["ls"], repository="project").check().stdout
    assert client.run(["ls", "-A"]).stdout == ""
    client.close_session(session)
    with pytest.raises(ConflictError, match="take the diff before you close"):
        client.diff_session(session)
    with pytest.raises(InvalidInputError, match="needs a repository"):
        client.run(["true"], commit_sha="main")
    with pytest.raises(InvalidInputError):
        client.run("ls -l")


def test_long_output(client: DebugServerClient) -> None:
    """The text says what is left out, and the log has it."""
    done = client.run(["seq", "100000"], output_bytes=12)
    assert done.truncated and done.stdout.startswith("1\n2\n3\n") and done.stdout.endswith("9999\n100000\n")
    (part,) = done.reply.left_out
    assert f"[{part.bytes} bytes left out: offsets {part.start} to {part.end} of the log]" in done.stdout
    data = b"".join(piece.data for piece in client.stored_log(done.command_id))
    assert done.stdout_data == data[: part.start] + data[part.end :]


def test_it_returns_when_the_command_has_ended(client: DebugServerClient, tmp_path: Path) -> None:
    """Although each of its requests waits only briefly; the same key finds the same command."""
    gate = tmp_path / "gate"
    argv = ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done; echo done"]
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(client.run, argv, wait=0.1, key="the key") for _ in range(2)]
        eventually(lambda: [item for item in client.list_sessions() if item.status == "running"], what="the command")
        assert not any(run.done() for run in runs)
        gate.touch()
        first, second = (run.result(SECONDS) for run in runs)
    assert first.stdout == "done\n" and first.command_id == second.command_id


def test_the_asynchronous_client(server: ServerProcess, repository: Path) -> None:
    """It has the same method."""

    async def run() -> list[Completed]:
        async with AsyncDebugServerClient(base_url=server.base_url, token=server.token) as client:
            return list(await asyncio.gather(*(client.run(["echo", str(number)]) for number in range(4))))

    assert [done.stdout for done in asyncio.run(run())] == [f"{number}\n" for number in range(4)]


@pytest.mark.parametrize("place", ["session", "folder", "repository"])
def test_a_server_that_is_killed(tmp_path: Path, place: str) -> None:
    """The command carries on, the next server gives its answer to the same key, and it ran once."""
    gate, count = tmp_path / "gate", tmp_path / "count"
    argv = ["sh", "-c", f"echo once >> {count}; while [ ! -e {gate} ]; do sleep 0.02; done; echo done"]
    with (
        serving(tmp_path / "server") as server,
        DebugServerClient(base_url=server.base_url, token=server.token) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        client.register_repository("project", str(make_repository(server.root / "project")))
        where: dict[str, Any] = {"repository": "project"} if place == "repository" else {}
        if place == "session":
            where = {"session_id": client.open_session("project", "main").id}

        def run() -> Completed | None:
            try:
                return client.run(argv, wait=1.0, key="the key", **where)
            except UnavailableError:  # the server was away for longer than a request is repeated
                return None

        answer = thread.submit(eventually, run, what="the answer")
        eventually(count.exists, what="the command")
        server.kill()
        gate.touch()
        server.start()
        done = answer.result(2 * SECONDS)
        assert (done.exit_code, done.stdout, count.read_text()) == (0, "done\n", "once\n")
        assert client.run(argv, key="the key", **where).command_id == done.command_id


def test_commit_is_another_name(server: ServerProcess) -> None:
    """Of ``commit_sha``, also where a session is opened; both together are refused before anything is sent."""
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        client.register_repository("aliased", str(make_repository(server.root / "aliased")))
        done = client.run(["git", "rev-parse", "HEAD"], repository="aliased", commit="main").check()
        session = client.open_session("aliased", commit="main")
        assert session.commit_sha == done.stdout.strip()
        client.close_session(session.id)
        with pytest.raises(InvalidInputError, match="another name for commit_sha"):
            client.run(["true"], repository="aliased", commit="main", commit_sha="main")


def test_a_wrong_argument_of_run_names_run() -> None:
    """And the nearest argument, for both clients."""
    with DebugServerClient(base_url="http://127.0.0.1:1", token="t") as client:
        with pytest.raises(TypeError, match=r"run\(\) .*'comit': did you mean 'commit'\?"):
            client.run(["true"], comit="main")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="did you mean 'repository'"):
            client.run(["true"], repo="project")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"run\(\) missing a required argument: 'argv'"):
            client.run()  # type: ignore[call-arg]

    async def awaited() -> None:
        async with AsyncDebugServerClient(base_url="http://127.0.0.1:1", token="t") as other:
            with pytest.raises(TypeError, match=r"run\(\) "):
                await other.run(["true"], comit="main")  # type: ignore[call-arg]

    asyncio.run(awaited())
