"""Servers in child processes and real clients of them, for the tests of the MCP surface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from debug_server.service import ERRORS
from debug_server.surfaces.mcp.refusal import ERROR_KEY, REPLY_KEY
from tests.running import ROOT
from tests.worktrees.places import Remote, make_remote

COMMAND = [sys.executable, "-m", "tests.surfaces.mcp.serve_program"]
TRANSPORTS = ("stdio", "http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """A server's address and its admin's token."""

    port: int
    token: str
    toolsets: str = "all"

    @property
    def url(self) -> str:
        """Its address, with the chosen tools."""
        return f"http://127.0.0.1:{self.port}/mcp?toolsets={self.toolsets}"


def toolsets_at(server: Http, names: str) -> Http:
    """The same server with other toolsets."""
    return replace(server, toolsets=names)


def environment() -> dict[str, str]:
    """What a child needs to find the package, and no server that somebody has configured."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "DEBUG_SERVER_HOME": "/nonexistent"}


def remote(folder: Path) -> Remote:
    """A small repository to run things in."""
    made = make_remote(folder / "remote")
    made.commit({"hello.txt": "hello\n"})
    return made


@contextmanager
def http_server(folder: Path) -> Iterator[Http]:
    """A server with its data in ``folder``."""
    said = folder / "server.err"
    with said.open("wb") as errors:
        child = subprocess.Popen(
            [*COMMAND, "http"], cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=errors
        )
    assert child.stdout is not None
    try:
        yield Http(**json.loads(child.stdout.readline()))
        assert child.poll() is None, "the server must outlive its clients"
    finally:
        child.terminate()
        child.wait(100)
        child.stdout.close()
    assert "Traceback" not in said.read_text(), said.read_text()


@asynccontextmanager
async def http_client(server: Http, token: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
    """A client that presents a token."""
    headers = {"Authorization": f"Bearer {token or server.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=100) as http:
        transport = streamable_http_client(server.url, http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=100) as client:
            yield client


@asynccontextmanager
async def stdio_client(folder: Path, mode: str = "auto", toolsets: str = "all") -> AsyncIterator[Client]:
    """A client of a child that it starts itself."""
    arguments = [*COMMAND[1:], "stdio", toolsets]
    child = StdioServerParameters(command=COMMAND[0], args=arguments, env=environment(), cwd=folder)
    async with Client(child, mode=mode, read_timeout_seconds=100) as client:
        yield client


@asynccontextmanager
async def connected(transport: str, folder: Path, mode: str = "auto") -> AsyncIterator[Client]:
    """A client over either transport."""
    if transport == "stdio":
        async with stdio_client(folder, mode) as client:
            yield client
        return
    with http_server(folder) as server:
        async with http_client(server, mode=mode) as client:
            yield client


class ToolFailed(Exception):
    """A tool answered that it failed."""


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool that must succeed, as programs get it."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise ToolFailed(words(result))
    return reply_of(result)


def reply_of(result: CallToolResult) -> dict[str, Any]:
    """The answer as programs get it."""
    assert result.structured_content is None, "clients would show it to the model instead of the text"
    assert result.meta is not None
    reply: dict[str, Any] = result.meta[REPLY_KEY]
    return reply


async def refusal(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a failed tool says of its error, which the model must be able to read."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, words(result)
    assert result.structured_content is None
    assert result.meta is not None
    told: dict[str, Any] = result.meta[ERROR_KEY]
    assert told["message"] in words(result)
    assert f"code: {told['code']}, retryable: {str(told['retryable']).lower()}" in words(result)
    assert told["retryable"] == ERRORS[told["code"]].retryable
    return told


def words(result: CallToolResult) -> str:
    """What the model reads."""
    return "\n".join(item.text for item in result.content if isinstance(item, TextContent))
