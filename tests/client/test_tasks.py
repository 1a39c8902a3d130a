"""Host tasks over the SDK: submit, watch, wait, cancel, list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.errors import ConflictError, InvalidInputError, NotFoundError
from tests.servers import ServerProcess, serving

TEMPLATE = "printf '\\377{task_id}\\n'; if [ {prompt} = wait ]; then sleep 600; fi"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose tasks are shell commands."""
    home = tmp_path_factory.mktemp("home")  # a login shell reads its profile
    variables = {"HOST_RUNNER_EXECUTOR": "shell", "HOST_RUNNER_CMD_TEMPLATE": TEMPLATE, "HOME": str(home)}
    with serving(tmp_path_factory.mktemp("server"), variables=variables) as running:
        yield running


def test_a_task_from_submit_to_its_end(server: ServerProcess) -> None:
    """Its output is followed as exact bytes, the wait ends with it, and lists and refusals name it."""
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        task = client.submit_task("one", "go", run_id="run")
        assert (task.task_id, task.run_id, task.status) == ("one", "run", "queued")
        assert b"".join(piece.data for piece in client.follow_task_log("one")) == b"\xffone\n"
        assert b"".join(piece.data for piece in client.stored_task_log("one", offset=1)) == b"one\n"
        ended = client.wait_task("one")
        assert (ended.ended, ended.status, ended.exit_code) == (True, "success", 0)
        assert client.get_task("one") == ended
        assert "one" in [item.task_id for item in client.tasks(status="success")]
        assert "one" not in [item.task_id for item in client.tasks(status="failed")]
        with pytest.raises(NotFoundError, match="two"):
            client.get_task("two")
        with pytest.raises(InvalidInputError, match="execution_mode"):
            client.submit_task("three", "go", execution_mode="nowhere")


def test_a_task_is_canceled(server: ServerProcess) -> None:
    """Cancel returns the ended task; a second task of the same name is refused while the first one runs."""
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        client.submit_task("long", "wait")
        with pytest.raises(ConflictError, match="long"):
            client.submit_task("long", "go")
        assert not client.wait_task("long", seconds=0.1).ended
        assert client.cancel_task("long").status == "canceled"
        assert client.wait_task("long").status == "canceled"


async def _awaited(server: ServerProcess) -> None:
    async with AsyncDebugServerClient(base_url=server.base_url, token=server.token) as client:
        await client.submit_task("awaited", "go")
        assert b"".join([piece.data async for piece in client.follow_task_log("awaited")]) == b"\xffawaited\n"
        assert (await client.wait_task("awaited")).status == "success"
        assert "awaited" in [item.task_id async for item in client.tasks()]


def test_the_awaited_client_has_tasks(server: ServerProcess) -> None:
    """The asynchronous client does the same."""
    asyncio.run(_awaited(server))
