"""Refusals tell an agent what to call next: the tool that is meant, the tool that lists, an example."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mcp import MCPError

from debug_server.surfaces.mcp.bridge import Bridge
from debug_server.surfaces.mcp.tool_names import meant_tool
from debug_server.surfaces.mcp.toolsets import DEFAULT
from tests.surfaces.mcp.peers import call, http_server, refusal, remote, stdio_client, words


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("history", "find_commands"),
        ("ps", "find_commands"),
        ("exec_command", "run"),
        ("run_command", "run"),
        ("list_sessions", "session_list"),
        ("command_list", "session_commands"),
        ("token_create", "create_token"),
        ("sesion_create", "session_create"),
        ("cancel", "cancel_command"),
        ("worker_create", None),
        ("no_such_tool", None),
    ],
)
def test_the_tool_that_is_meant(given: str, meant: str | None) -> None:
    """By the name that another interface has for it, by its words, by its letters; no tool of another noun."""
    assert meant_tool(given) == meant


def test_refusals_name_the_next_tool(tmp_path: Path, nothing_left: None) -> None:
    """Over the protocol: where rows are listed, the nearest repository, an example of a wrong argument."""
    asyncio.run(_refusals(tmp_path))


async def _refusals(folder: Path) -> None:
    async with stdio_client(folder) as client:
        await call(client, "repository_init", name="sample", remote_url=str(remote(folder).path))
        for tool, arguments, text in (
            ("session_info", {"session_id": 99}, "there is no session 99: session_list lists those that you may see"),
            ("command_info", {"command_id": 99}, "there is no command 99: find_commands lists those that you may see"),
            ("session_create", {"repository": "sampel"}, "did you mean 'sample'? repository_list lists"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error and text in words(result), words(result)
        told = await refusal(client, "run", argv="ls -l")
        assert 'argv: must be a list, not \'ls -l\', for example ["pytest", "-q"]' in told["message"]
        told = await refusal(client, "session_list", status=["opn"])
        assert "status: must be" in told["message"] and "did you mean 'open'?" in told["message"]
        told = await refusal(client, "repository_init", name="x", remote_url="./x")
        assert "is a relative path" in told["message"]


def test_the_newest_session_is_the_first(tmp_path: Path, nothing_left: None) -> None:
    """Page after page, and the oldest first where that is asked for."""
    asyncio.run(_sessions(tmp_path))


async def _sessions(folder: Path) -> None:
    async with stdio_client(folder) as client:
        await call(client, "repository_init", name="sample", remote_url=str(remote(folder).path))
        opened = [(await call(client, "session_create", repository="sample"))["id"] for _ in range(3)]
        first = await call(client, "session_list", limit=2)
        rest = await call(client, "session_list", limit=2, after=first["next_after"])
        assert [row["id"] for row in (*first["items"], *rest["items"])] == sorted(opened, reverse=True)
        assert rest["next_after"] is None
        oldest = await call(client, "session_list", order="oldest")
        assert [row["id"] for row in oldest["items"]] == sorted(opened)
        for session in opened:
            await call(client, "session_close", session_id=session)


def test_the_bridge_says_what_to_write_for_a_wrong_address(tmp_path: Path, nothing_left: None) -> None:
    """To a model, which can tell its user: TLS where there is none."""
    with http_server(tmp_path) as server:
        address = server.url.partition("://")[2].partition("/")[0]
        bridge = Bridge(f"https://{address}", "t", verify_tls=True, server_uid=None, toolsets=DEFAULT)
        with pytest.raises(MCPError, match=f"write http://{address}"):
            asyncio.run(bridge.list_tools())
