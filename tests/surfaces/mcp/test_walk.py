"""An agent's day with the tools that are listed by default, read as a model reads them: by the text of the answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.surfaces.mcp.peers import TRANSPORTS, http_client, http_server, remote, stdio_client, toolsets_at, words

PATCH = """\
--- a/hello.txt
+++ b/hello.txt
@@ -1 +1 @@
-hello
+patched
"""
FAIL = "for i in $(seq 500); do echo step $i; done; echo 'FAILED tests/a.py::test_x - AssertionError: 4 != 5'; exit 1"
Ask = Callable[..., Awaitable[str]]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_walk(transport: str, tmp_path: Path, nothing_left: None) -> None:
    """Open, patch, run, fail, digest, read, diff, cancel, list, history and close, over both transports."""
    asyncio.run(_walk(transport, tmp_path))


@asynccontextmanager
async def _connected(transport: str, folder: Path) -> Any:
    if transport == "stdio":
        async with stdio_client(folder, toolsets="core") as client:
            yield client
        return
    with http_server(folder) as server:
        async with http_client(toolsets_at(server, "core")) as client:
            yield client


async def _walk(transport: str, folder: Path) -> None:
    origin = remote(folder)
    connection: AbstractAsyncContextManager[Client] = _connected(transport, folder)
    async with connection as client:

        async def ask(tool: str, **arguments: Any) -> str:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, words(result)
            return words(result)

        assert "repository sample" in await ask("repository_init", name="sample", remote_url=str(origin.path))
        assert "repository sample" in await ask("repository_list")
        said = await ask("session_create", repository="sample", patch=PATCH)
        session = _number(said, r"session (\d+): \w+, commit [0-9a-f]{12} with a patch")
        said = await ask("run", session_id=session, argv=["cat", "hello.txt"])
        assert "succeeded, exit code 0" in said and "patched" in said
        await _failure(ask, session)
        await _changed(ask, session)
        await _cancelled(ask, session)
        assert "test_x" in await ask("session_logs", session_id=session)
        listed = await ask("session_commands", session_id=session)
        assert [re.findall(r"succeeded|failed|cancelled", line)[0] for line in listed.splitlines()] == [
            "succeeded",
            "failed",
            "succeeded",
            "cancelled",
        ]
        assert f"of session {session}: cancelled" in (await ask("find_commands", limit=1)).splitlines()[0]
        assert f"session {session}: open" in await ask("session_list", status=["open"])
        assert "closed" in await ask("session_close", session_id=session)
        assert f"session {session}: closed (completed)" in await ask("session_info", session_id=session)
        alone = await ask("run", repository="sample", argv=["cat", "hello.txt"])
        assert "hello" in alone and f"session {session}" not in alone
        assert "succeeded" in await ask("run", argv=["true"])
        newest = (await ask("session_list", limit=1)).splitlines()[0]
        assert re.fullmatch(r"session \d+: closed \(completed\), in an empty folder", newest), newest


async def _failure(ask: Ask, session: int) -> None:
    """The digest names the test and where it is in the log; a small budget is kept, and says what it leaves out."""
    said = await ask("run", session_id=session, argv=["sh", "-c", FAIL], max_tokens=300)
    command = _number(said, r"command (\d+) of session \d+: failed, exit code 1")
    offset = _number(said, r"failing tests \(1\):\n  @(\d+) tests/a.py::test_x")
    assert "left out: " in said or "x500" in said
    head, _, digest = said.partition("\n")
    assert head.startswith(f"command {command} of session {session}") and len(digest) <= 4 * 300
    assert (await ask("read_log", command_id=command, offset=offset)).startswith("FAILED tests/a.py::test_x")
    assert (await ask("read_log", command_id=command, grep="nothing like it")).startswith("no line matches\n")
    assert "step 7\n" in await ask("read_log", command_id=command, grep="^step 7$", context=1)
    assert (await ask("read_log", command_id=command, tail=1)).startswith("FAILED tests/a.py::test_x")
    assert "FAILED tests/a.py::test_x" in await ask("log_digest", command_id=command, max_tokens=200)


async def _changed(ask: Ask, session: int) -> None:
    """The diff has the text of what changed, in parts if it is long, and no content of binary files."""
    await ask("run", session_id=session, argv=["sh", "-c", "head -c 5000 /dev/urandom > raw.bin; seq 999 > numbers"])
    whole = await ask("session_diff", session_id=session)
    assert "+patched" in whole and "(binary content left out: " in whole and "+999" in whole
    parts, offset = "", "0"
    while offset:
        part = await ask("session_diff", session_id=session, offset=int(offset), max_tokens=300)
        text, _, offset = part.partition("\n[continue with offset=")
        assert len(text) <= 4 * 300
        parts, offset = parts + text, offset.rstrip("]")
    assert parts == whole


async def _cancelled(ask: Ask, session: int) -> None:
    """A command that still runs after the wait is named, waited for, and cancelled."""
    said = await ask("run", session_id=session, argv=["sh", "-c", "echo up; sleep 600"], wait_seconds=0.2)
    command = _number(said, r"command (\d+) of session \d+: (?:pending|running)")
    assert f"call wait_command with command_id={command}" in said
    assert "It has not ended" in await ask("wait_command", command_id=command, wait_seconds=0.2)
    assert f"command {command} of session {session}: cancelled" in await ask("cancel_command", command_id=command)


def _number(text: str, pattern: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, text
    return int(found[1])
