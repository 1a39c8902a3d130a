"""A day with the SDK: open, patch, run, fail, digest, diff, cancel, list, history; blocking and asynchronous."""

from __future__ import annotations

import asyncio

import pytest

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.errors import CommandFailedError
from tests.repositories import make_repository
from tests.servers import ServerProcess

PATCH = """\
diff --git a/note.txt b/note.txt
new file mode 100644
--- /dev/null
+++ b/note.txt
@@ -0,0 +1 @@
+patched
"""
FAIL = ["sh", "-c", "seq 300; echo 'AssertionError: 4 != 5' >&2; exit 3"]


def test_the_blocking_client(server: ServerProcess) -> None:
    """Each verb, in the order in which a program uses them."""
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        client.register_repository("walk", str(make_repository(server.root / "walk")))
        session = client.open_session("walk", "HEAD", patch=PATCH)
        assert client.run(["cat", "note.txt"], session_id=session.id).check().stdout == "patched\n"
        failed = client.run(FAIL, session_id=session.id)
        with pytest.raises(CommandFailedError, match="4 != 5"):
            failed.check()
        assert "4 != 5" in client.digest_log(failed.command_id).as_text()
        assert client.read_log_text(failed.command_id, grep="!=").matches[0].text == "AssertionError: 4 != 5"
        client.run(["touch", "made.txt"], session_id=session.id).check()
        assert "made.txt" in client.diff_session(session.id).patch
        long = client.submit_command(session.id, ["sleep", "600"])
        assert long.id in [command.id for command in client.all_commands(status=["active"])]
        client.cancel_command(long.id)
        assert client.wait_command(long.id).exit_reason == "cancelled"
        assert session.id in [item.id for item in client.sessions(status=["open"])]
        client.close_session(session.id)
        history = {command.id: command.exit_reason for command in client.all_commands(status=["ended"])}
        assert (history[failed.command_id], history[long.id]) == ("nonzero_exit", "cancelled")


async def _walk(server: ServerProcess) -> None:
    async with AsyncDebugServerClient(base_url=server.base_url, token=server.token) as client:
        await client.register_repository("awaited", str(make_repository(server.root / "awaited")))
        session = await client.open_session("awaited", "HEAD", patch=PATCH)
        assert (await client.run(["cat", "note.txt"], session_id=session.id)).check().stdout == "patched\n"
        failed = await client.run(FAIL, session_id=session.id)
        with pytest.raises(CommandFailedError, match="4 != 5"):
            failed.check()
        assert "4 != 5" in (await client.digest_log(failed.command_id)).as_text()
        (await client.run(["touch", "made.txt"], session_id=session.id)).check()
        assert "made.txt" in (await client.diff_session(session.id)).patch
        long = await client.submit_command(session.id, ["sleep", "600"])
        await client.cancel_command(long.id)
        assert (await client.wait_command(long.id)).exit_reason == "cancelled"
        assert session.id in [item.id async for item in client.sessions(status=["open"])]
        await client.close_session(session.id)
        history = {command.id: command.exit_reason async for command in client.all_commands(status=["ended"])}
        assert (history[failed.command_id], history[long.id]) == ("nonzero_exit", "cancelled")


def test_the_asynchronous_client(server: ServerProcess) -> None:
    """The same verbs with ``await``, the same lists with ``async for``."""
    asyncio.run(_walk(server))
