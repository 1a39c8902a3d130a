"""What the surface refuses: calls without a token or scope, other people's things, wrong arguments, broken messages."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError

from debug_server.errors import InvalidInputError
from debug_server.messages import OPERATIONS
from debug_server.service import ERRORS
from debug_server.surfaces.mcp.calls import decoded
from debug_server.surfaces.mcp.refusal import ERROR_KEY, REPLY_KEY
from debug_server.surfaces.mcp.tools import OPERATIONS_WITHOUT_TOOL, TOOLS
from tests.surfaces.mcp.peers import (
    COMMAND,
    Http,
    call,
    environment,
    http_client,
    http_server,
    refusal,
    remote,
    stdio_client,
)

ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def test_every_operation_has_a_tool() -> None:
    """Parity: each operation of the table has a tool, with all of its arguments, or is an exception with a reason."""
    performed = {operation for tool in TOOLS.values() for operation in tool.operations}
    assert performed | OPERATIONS_WITHOUT_TOOL.keys() == OPERATIONS.keys()
    assert not performed & OPERATIONS_WITHOUT_TOOL.keys()
    for tool in TOOLS.values():
        if len(tool.operations) == 1:
            assert set(OPERATIONS[tool.operations[0]].request.model_fields) <= {
                *tool.request.model_fields,
                *({"timeout"} if tool.name == "wait_command" else ()),
            }


def test_the_sdk_is_not_loaded_before_it_is_wanted() -> None:
    """A server that mounts the surface does not pay for it at its start."""
    program = "import sys, debug_server.surfaces.mcp.http; print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, check=True)
    assert done.stdout.strip() == b"False"


def test_tokens_and_scopes(tmp_path: Path, nothing_left: None) -> None:
    """No token is 401, a missing scope is `forbidden`, another's session looks as if it did not exist."""
    asyncio.run(_tokens_and_scopes(tmp_path))


async def _tokens_and_scopes(folder: Path) -> None:
    origin = remote(folder)
    with http_server(folder) as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eA=="}):
            await _unauthorized(server, headers)
        async with http_client(server) as admin:
            await call(admin, "repository_init", name="sample", remote_url=str(origin.path))
            session = await call(admin, "session_create", repository="sample", commit_sha="HEAD")
            writer = await call(admin, "create_token", name="w", scopes=["commands:write", "sessions:write"])
            reader = await call(admin, "create_token", name="r", scopes=["sessions:read", "artifacts:read"])
            async with http_client(server, writer["token"]) as client:
                assert await _refused(client, "run", repository="sample", argv=["echo", "secret"]) == "forbidden"
                ran = await call(client, "start_run", repository="sample", argv=["echo", "secret"])
                assert await _refused(client, "read_log", command_id=ran["command"]["id"]) == "forbidden"
                assert await _refused(client, "session_logs", session_id=ran["session"]["id"]) == "forbidden"
                assert await _refused(client, "repository_init", name="x", remote_url="/x") == "forbidden"
                assert (await call(client, "who_am_i"))["name"] == "w"
            async with http_client(server, reader["token"]) as client:
                assert await _refused(client, "session_info", session_id=session["id"]) == "not_found"
                assert await _refused(client, "read_log", command_id=ran["command"]["id"]) == "not_found"
                assert await _refused(client, "session_close", session_id=session["id"]) == "forbidden"
                await call(admin, "revoke_token", token_id=reader["id"])
            await _unauthorized(server, _bearer(reader["token"]))
            await _sent_away(server, admin)
            await call(admin, "wait_command", command_id=ran["command"]["id"])
            await call(admin, "session_close", session_id=session["id"])


async def _sent_away(server: Http, admin: Client) -> None:
    """Who waits for a command, and hears what it says meanwhile, does so no longer than the token is good."""
    made = await call(admin, "create_token", name="short", scopes=["admin"])
    session = await call(admin, "session_create", repository="sample", commit_sha="HEAD")
    command = await call(admin, "submit_command", session_id=session["id"], argv=["sleep", "600"])
    following = asyncio.Event()

    async def told(progress: float, total: float | None, message: str | None) -> None:
        following.set()

    async with http_client(server, made["token"]) as client:
        arguments = {"command_id": command["id"], "wait_seconds": 600}
        waiting = asyncio.create_task(client.call_tool("wait_command", arguments, progress_callback=told))
        await asyncio.wait_for(following.wait(), 100)
        await call(admin, "revoke_token", token_id=made["id"])
        result = await asyncio.wait_for(waiting, 100)
    assert result.is_error and result.meta is not None and result.meta[ERROR_KEY]["code"] == "unauthorized"
    await call(admin, "session_close", session_id=session["id"])


async def _unauthorized(server: Http, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient(timeout=100) as http:
        answer = await http.post(server.url, json={}, headers={**ACCEPT, **headers})
    assert answer.status_code == 401
    assert answer.json()["error"]["data"]["code"] == "unauthorized"


async def _refused(client: Client, tool: str, **arguments: Any) -> str:
    return str((await refusal(client, tool, **arguments))["code"])


def _bearer(token: str) -> dict[str, str]:
    return {**ACCEPT, "Authorization": f"Bearer {token}"}


def test_wrong_arguments(tmp_path: Path, nothing_left: None) -> None:
    """Whatever the arguments, the result says what is wrong by the table, never an internal error; only a tool that
    does not exist is the protocol's error."""
    asyncio.run(_wrong_arguments(tmp_path))


async def _wrong_arguments(folder: Path) -> None:
    origin = remote(folder)
    chance = random.Random(7)
    async with stdio_client(folder) as client:
        await call(client, "repository_init", name="sample", remote_url=str(origin.path))
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("no_such_tool", {})
        assert (unknown.value.code, unknown.value.data["code"]) == (-32602, "invalid_input")
        assert await _refused(client, "session_create", repository="nowhere", commit_sha="HEAD") == "not_found"
        assert await _refused(client, "session_close", idempotency_key=1) == "invalid_input"
        assert await _refused(client, "session_debug", session_id=1) == "not_found"
        assert await _refused(client, "read_log", command_id=1, grep="a||b") in {"not_found", "invalid_input"}
        assert await _refused(client, "run", repository="sample", commit_sha="0" * 40, argv=["x"]) == "unknown_commit"
        for tool in TOOLS.values():
            if tool.name in {"run", "session_create"}:
                continue  # their good luck would start things that nobody waits for
            for _ in range(4):
                await _never_internal(client, tool.name, _arguments(chance, list(tool.request.model_fields)))


async def _never_internal(client: Client, tool: str, arguments: dict[str, Any]) -> None:
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        assert result.meta is not None
        assert result.meta[ERROR_KEY]["code"] in ERRORS.keys() - {"internal_error"}, (tool, arguments, result)


_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**70,
    1.5,
    "",
    "x",
    "\0",
    "x" * 5000,
    "ü\u2028",
    [],
    ["x"],
    [None],
    {},
    {"a": {}},
]


def _arguments(chance: random.Random, names: list[str]) -> dict[str, Any]:
    chosen = {name: chance.choice(_VALUES) for name in names if chance.random() < 0.8}
    return {**chosen, "surplus": 1} if chance.random() < 0.2 else chosen


@pytest.mark.parametrize("value", ["\ud800", float("nan"), {"\udfff": 1}])
def test_values_that_would_not_come_back_are_refused(value: object) -> None:
    """Free-form metadata is plain JSON, or is refused before anything is done with it."""
    arguments = {"repository": "x", "commit_sha": "x", "metadata": {"a": [value]}}
    with pytest.raises(InvalidInputError, match="not plain JSON"):
        decoded(TOOLS["session_create"].request, arguments, of="session_create")


def test_malformed_messages_over_http(tmp_path: Path, nothing_left: None) -> None:
    """Broken JSON, wrong envelopes, wrong headers and huge bodies are client errors; the server answers on."""
    with http_server(tmp_path) as server, httpx.Client(timeout=100) as http:
        chance = random.Random(11)
        for body in [*_BODIES, *(_mutated(chance) for _ in range(80))]:
            for headers in ({}, {"MCP-Protocol-Version": "2025-06-18"}, {"MCP-Protocol-Version": "2026-07-28"}):
                answer = http.post(server.url, content=body, headers={**_bearer(server.token), **headers})
                assert answer.status_code < 500, (body[:200], headers, answer.text)
        for method in ("GET", "PUT", "DELETE", "OPTIONS"):
            with http.stream(method, server.url, headers={**_bearer(server.token), "Accept": "x"}) as refused:
                assert 400 <= refused.status_code < 500
        huge = http.post(server.url, content=b" " * (41 << 20), headers=_bearer(server.token))
        assert huge.status_code == 413
        asyncio.run(_alive(server))


async def _alive(server: Http) -> None:
    async with http_client(server) as client:
        assert (await call(client, "health"))["ok"]


def test_malformed_messages_over_stdio(tmp_path: Path, nothing_left: None) -> None:
    """Lines that are no messages do not end the server, and stdout carries JSON-RPC and nothing else."""
    chance = random.Random(13)
    noise = [*_BODIES, *(_mutated(chance) for _ in range(150))]
    lines = [body.replace(b"\n", b" ") for body in noise]
    hello = _message("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": _CLIENT})
    ask = _message("tools/call", {"name": "who_am_i", "arguments": {}}, number=4711)
    wire = b"\n".join([hello, b'{"jsonrpc":"2.0","method":"notifications/initialized"}', *lines, ask, b""])
    command = [*COMMAND, "stdio"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(wire)
        child.stdin.flush()
        answers: list[dict[str, Any]] = []
        while not answers or answers[-1].get("id") != 4711:
            answers.append(json.loads(child.stdout.readline()))
        child.stdin.close()
        assert child.wait(100) == 0
    assert answers[-1]["result"]["_meta"][REPLY_KEY]["name"] == "local"
    assert not [item for item in answers if item.get("error", {}).get("code") == -32603]


_CLIENT = {"name": "test", "version": "1"}


def _message(method: str, params: object, number: object = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


_BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe",
    b"[" * 100_000,
    b'"' + b"x" * 100_000,
    b"1e999999",
    b"9" * 10_000,
    _message("tools/call", None),
    _message("tools/call", []),
    _message("tools/call", {"name": 1}),
    _message("tools/call", {"name": "who_am_i", "arguments": []}),
    _message("tools/call", {"name": "who_am_i", "arguments": {"a" * 70000: 1}}),
    _message("tools/call", {"name": "x" * 100_000, "arguments": {}}),
    _message("tools/call", {"name": "who_am_i", "_meta": {"progressToken": {}}}),
    _message("resources/read", {"uri": "debug-server://commands/../../log"}),
    _message("resources/read", {"uri": "file:///etc/passwd"}),
    _message("resources/read", {"uri": "debug-server://commands/%00/log?offset=-1"}),
    _message("resources/subscribe", {"uri": "debug-server://commands/1/log"}),
    _message("completion/complete", {}),
    _message("no/such", {}),
    _message("tools/list", {"cursor": {"a": 1}}),
    _message("ping", {}, number=None),
    _message("ping", {}, number=[]),
    _message("ping", {}, number=2**80),
    b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"health","arguments":{"x":"\\ud800"}}}',
]


def _mutated(chance: random.Random) -> bytes:
    body = bytearray(chance.choice(_BODIES[9:]))
    for _ in range(chance.randrange(1, 6)):
        position = chance.randrange(len(body))
        body[position : position + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
    return bytes(body)
