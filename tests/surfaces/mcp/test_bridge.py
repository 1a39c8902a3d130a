"""``debug-server mcp`` for an agent whose server is elsewhere."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import TextResourceContents

from tests.surfaces.mcp.peers import Http, call, environment, http_client, http_server, refusal, remote, reply_of, words


def bridged(server: Http, folder: Path) -> Client:
    """A client of the program, which was told of a server by its variables."""
    variables = {"DEBUG_SERVER_URL": server.url.partition("/mcp")[0], "DEBUG_SERVER_TOKEN": server.token}
    own = {**environment(), **variables, "DEBUG_SERVER_HOME": str(folder / "home")}
    child = StdioServerParameters(
        command=sys.executable, args=["-m", "debug_server", "mcp", "--toolsets", "all"], env=own, cwd=folder
    )
    return Client(child, read_timeout_seconds=100)


def test_everything_is_asked_of_the_server(tmp_path: Path, nothing_left: None) -> None:
    """Tools, progress, refusals and resources are the server's, here nothing is kept; without it there is an error."""
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    asyncio.run(_scene(there, here))
    assert not (here / ".artifacts").exists()


async def _scene(there: Path, here: Path) -> None:
    origin = remote(there)
    told: list[str] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append(str(message))

    with ExitStack() as life:
        server = life.enter_context(http_server(there))
        async with bridged(server, here) as client:
            async with http_client(server) as direct:
                assert (await client.list_tools()).tools == (await direct.list_tools()).tools
                me = await call(direct, "who_am_i")
            await call(client, "repository_init", name="sample", remote_url=str(origin.path))
            arguments = {"repository": "sample", "commit_sha": "HEAD", "argv": ["cat", "hello.txt"]}
            ran = await client.call_tool("run", arguments, progress_callback=tell)
            assert "hello" in words(ran)
            number = reply_of(ran)["command"]["id"]
            assert any(f"command {number}" in text for text in told)
            (log,) = (await client.read_resource(f"debug-server://commands/{number}/log")).contents
            assert isinstance(log, TextResourceContents) and log.text == "hello\n"
            assert await _refusal(client, "session_info", session_id=999) == ("not_found", False)
            await call(client, "revoke_token", token_id=me["token_id"])
            with pytest.raises(MCPError) as refused:
                await client.call_tool("who_am_i", {})
            assert refused.value.data["code"] == "unauthorized"
            life.close()
            assert await _refusal(client, "who_am_i") == ("unreachable", True)


async def _refusal(client: Client, tool: str, **arguments: object) -> tuple[str, bool]:
    told = await refusal(client, tool, **arguments)
    return told["code"], told["retryable"]
