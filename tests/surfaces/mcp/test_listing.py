"""What a model reads before its first call: which tools are listed, with which schemas and hints, and at what size."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import ListToolsResult

from debug_server.errors import InvalidInputError
from debug_server.messages import ADMIN, OPERATIONS
from debug_server.service import LOCAL
from debug_server.surfaces.mcp.tools import TOOLS, Tool
from debug_server.surfaces.mcp.toolsets import DEFAULT, Toolset, parse_toolsets, toolsets_of_query
from tests.running import ROOT
from tests.surfaces.mcp.peers import (
    Http,
    call,
    environment,
    http_client,
    http_server,
    refusal,
    reply_of,
    toolsets_at,
    words,
)

# Names that users have already.
KNOWN = {"repository_init", "session_create", "session_info", "session_logs", "session_commands", "session_debug"}
CHARACTERS_PER_TOKEN = 4
CORE_TOKENS = 4000


def _arguments(tool: Tool) -> dict[str, Any]:
    return tool.described().input_schema["properties"]  # type: ignore[no-any-return]


def test_the_core_listing_is_small() -> None:
    """The answer to tools/list without a choice has at most 4,000 tokens of four characters, also for an admin."""
    tools = [tool.described() for tool in TOOLS.values() if tool.toolset in DEFAULT and tool.is_allowed(LOCAL)]
    answer = ListToolsResult(tools=tools).model_dump_json(by_alias=True, exclude_none=True)
    assert len(answer) <= CHARACTERS_PER_TOKEN * CORE_TOKENS
    assert {tool.name for tool in tools} >= KNOWN


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_every_argument_is_described(tool: Tool) -> None:
    """Each argument has a description and a type, also inside of another one; required ones are listed."""
    described = tool.described()
    assert described.description and described.output_schema is None
    for name, schema in _arguments(tool).items():
        assert schema.get("description"), name
        assert "type" in schema or "enum" in schema, (name, schema)
        for inner, part in schema.get("properties", {}).items():
            assert part.get("description") and part.get("type"), (name, inner)
    assert set(described.input_schema.get("required", ())) <= set(_arguments(tool))
    assert not tool.unlisted - {*tool.request.model_fields, "idempotency_key"}


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_hints_agree_with_the_table(tool: Tool) -> None:
    """What only reads is a GET in the table of operations; what runs programs is never called harmless."""
    hints = tool.described().annotations
    assert hints is not None
    reads = all(OPERATIONS[name].route.method == "GET" for name in tool.operations)
    assert hints.read_only_hint is reads
    if hints.read_only_hint:
        assert hints.open_world_hint is False
        return
    runs = bool({"argv", "data", "payload"} & _arguments(tool).keys()) or tool.name == "rerun_command"
    if runs:
        assert hints.destructive_hint and hints.open_world_hint
    deletes = any(OPERATIONS[name].route.method == "DELETE" for name in tool.operations)
    assert hints.destructive_hint or not deletes
    assert isinstance(hints.idempotent_hint, bool)


def test_a_tool_of_an_admin_is_in_its_toolset_or_in_core() -> None:
    """Tools that need the scope admin are in the toolset `admin`; only registering a repository is in core."""
    for tool in TOOLS.values():
        needs_admin = any(ADMIN in (OPERATIONS[name].scopes or ()) for name in tool.operations)
        assert needs_admin == (tool.toolset is Toolset.ADMIN) or tool.name == "repository_init"


def test_the_page_names_the_toolsets() -> None:
    """The table of the page has every toolset, and the tools of core."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", (ROOT / "docs" / "mcp.md").read_text(), re.MULTILINE)
    assert [name for name, _ in rows][: len(Toolset)] == list(Toolset)
    core = {name for name, tool in TOOLS.items() if tool.toolset is Toolset.CORE}
    assert set(re.findall(r"`(\w+)`", dict(rows)["core"])) == core


def test_toolsets_are_named() -> None:
    """Names are separated by commas, `all` is every one, none is the default, and a wrong one names the nearest."""
    assert parse_toolsets(" core, events,") == {Toolset.CORE, Toolset.EVENTS}
    assert parse_toolsets("all") == set(Toolset)
    assert parse_toolsets("") == DEFAULT == toolsets_of_query(b"") == toolsets_of_query(b"toolsets=")
    assert toolsets_of_query(b"toolsets=core%2Cadmin&toolsets=events") == {*DEFAULT, Toolset.ADMIN, Toolset.EVENTS}
    with pytest.raises(InvalidInputError, match="unknown toolset 'event': did you mean 'events'"):
        parse_toolsets("core,event")
    with pytest.raises(InvalidInputError, match="use some of core, sessions"):
        parse_toolsets("x")


def test_the_listing_follows_address_and_scopes(tmp_path: Path, nothing_left: None) -> None:
    """Core by default; other toolsets by address; what the token may not do is not listed."""
    asyncio.run(_listings(tmp_path))


async def _listings(folder: Path) -> None:
    core = [name for name, tool in TOOLS.items() if tool.toolset is Toolset.CORE]
    with http_server(folder) as server:
        assert await _listed(toolsets_at(server, "")) == core
        assert await _listed(server) == list(TOOLS)
        async with http_client(server) as admin:
            made = await call(admin, "create_token", name="reader", scopes=["sessions:read"])
        reader = Http(port=server.port, token=made["token"])
        found = await _listed(reader)
        assert {"session_info", "session_diff", "wait_command", "read_events"} <= set(found)
        assert not {"run", "repository_init", "read_log", "list_tokens", "session_create"} & set(found)
        assert await _listed(toolsets_at(reader, "admin")) == []
        async with http_client(toolsets_at(server, "core")) as client:
            await _is_told(client)
        async with httpx.AsyncClient(timeout=100) as http:
            headers = {"Authorization": f"Bearer {server.token}"}
            wrong = await http.post(f"{toolsets_at(server, 'artifact').url}", json={}, headers=headers)
        assert wrong.status_code == 422
        assert "did you mean 'artifacts'?" in wrong.json()["error"]["message"]


async def _listed(server: Http) -> list[str]:
    async with http_client(server) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


async def _is_told(client: Client) -> None:
    """A wrong name, a wrong argument and a tool of another toolset are answered with what to do."""
    told = await refusal(client, "read_events")
    assert told["message"].startswith("read_events is a tool of the toolset events")
    assert "debug-server mcp --toolsets core,events" in told["message"] and "?toolsets=core,events" in told["message"]
    with pytest.raises(MCPError, match="did you mean 'session_create'"):
        await client.call_tool("sesion_create", {})
    told = await refusal(client, "session_create", repositry="x")
    assert "did you mean 'repository'?" in told["message"]
    told = await refusal(client, "run", argv=["true"], wait=1)
    assert "use wait_seconds" in told["message"]
    told = await refusal(client, "session_create", repository="x", commands=["true"])
    assert "use the tool run" in told["message"]


def test_the_program_takes_toolsets(tmp_path: Path, nothing_left: None) -> None:
    """``debug-server mcp`` offers core, and other toolsets by its option."""
    asyncio.run(_program(tmp_path))


async def _program(folder: Path) -> None:
    for option, chosen in (((), DEFAULT), (("--toolsets", "events,artifacts"), parse_toolsets("events,artifacts"))):
        own = {**environment(), "DEBUG_SERVER_HOME": str(folder / "home")}
        arguments = ["-m", "debug_server", "mcp", *option]
        child = StdioServerParameters(command=sys.executable, args=arguments, env=own, cwd=folder)
        async with Client(child, read_timeout_seconds=100) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
            assert listed == [name for name, tool in TOOLS.items() if tool.toolset in chosen]
            if not option:
                ran = await client.call_tool("run", {"argv": ["sh", "-c", "echo here"]})
                assert "here" in words(ran) and reply_of(ran)["command"]["exit_code"] == 0
