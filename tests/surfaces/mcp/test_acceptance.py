"""A real client does everything over both transports: open, run, follow, cancel, artifacts, diff, close."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from mcp.types import BlobResourceContents, ResourceLink, TextResourceContents

from tests.store.postgres_cluster import Cluster
from tests.surfaces.mcp.peers import (
    COMMAND,
    TRANSPORTS,
    call,
    connected,
    environment,
    http_client,
    http_server,
    remote,
    reply_of,
    stdio_client,
    words,
)

SH = ["sh", "-c"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_acceptance(transport: str, mode: str, tmp_path: Path, nothing_left: None) -> None:
    """One session through its whole life, in both eras of the protocol, gives the same bytes and reasons."""
    asyncio.run(_acceptance(transport, mode, tmp_path))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_acceptance_on_postgresql(
    transport: str, tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    """The same with the rows in PostgreSQL."""
    monkeypatch.setenv("DEBUG_SERVER_SEAL_KEY_FILE", str(tmp_path / "seal.key"))
    with postgres.database() as url:
        monkeypatch.setenv("DEBUG_SERVER_DB_URL", url)
        asyncio.run(_acceptance(transport, "auto", tmp_path))


async def _acceptance(transport: str, mode: str, folder: Path) -> None:
    origin = remote(folder)
    async with connected(transport, folder, mode) as client:
        await call(client, "repository_init", name="sample", remote_url=str(origin.path), default_branch="main")
        session = await call(client, "session_create", repository="sample", commit_sha=origin.commits[-1])
        script = "cat hello.txt; echo more >> hello.txt; printf '<x/>' > junit.xml; printf '\\377\\0' > raw.bin; exit 3"
        command = await call(
            client,
            "submit_command",
            session_id=session["id"],
            argv=[*SH, script],
            artifacts=["junit.xml", "raw.bin"],
        )
        ended = await call(client, "wait_command", command_id=command["id"])
        assert ended["command"]["exit_code"] == 3
        assert ended["digest"]["text"] == "hello\n"
        diff = await call(client, "session_diff", session_id=session["id"])
        assert "+more" in diff["patch"]
        await _artifacts(client, session["id"])
        await _quotas(client)
        await _resources(client, command["id"])
        await _cancelled(client, session["id"])
        await call(client, "session_reset", session_id=session["id"])
        assert "+more" not in (await call(client, "session_diff", session_id=session["id"]))["patch"]
        forks = await call(client, "session_fork", session_id=session["id"], count=2)
        for item in [session, *forks["items"]]:
            await call(client, "session_close", session_id=item["id"])
        closed = await call(client, "session_info", session_id=session["id"])
        assert closed["status"] == "completed"


async def _artifacts(client: Any, session_id: int) -> None:
    result = await client.call_tool("list_artifacts", {"session_id": session_id})
    items = {item["name"].rpartition("/")[2]: item for item in reply_of(result)["items"]}
    assert {"junit.xml", "raw.bin"} <= set(items)
    [log] = [item for item in items.values() if item["kind"] == "log"]
    assert log["size"] == len("hello\n") and f"{log['name']} (6 bytes, log)" in words(result)
    junit, raw = items["junit.xml"]["id"], items["raw.bin"]["id"]
    part = await call(client, "read_artifact", session_id=session_id, artifact_id=junit)
    assert (part["encoding"], part["data"], part["next_offset"]) == ("utf-8", "<x/>", None)
    part = await call(client, "read_artifact", session_id=session_id, artifact_id=raw)
    assert (part["encoding"], base64.b64decode(part["data"])) == ("base64", b"\xff\0")
    links = [item for item in result.content if isinstance(item, ResourceLink)]
    assert len(links) == len(reply_of(result)["items"])
    [contents] = (await client.read_resource(f"debug-server://sessions/{session_id}/artifacts/{raw}")).contents
    assert isinstance(contents, BlobResourceContents)
    assert base64.b64decode(contents.blob) == b"\xff\0"


async def _quotas(client: Any) -> None:
    quotas = {"sessions": 4, "requests_per_second": 2.5}
    made = await call(client, "create_token", name="bounded", quotas=quotas)
    result = await client.call_tool("list_tokens", {})
    [listed] = [item for item in reply_of(result)["items"] if item["id"] == made["id"]]
    assert made["quotas"] == quotas == listed["quotas"]
    assert json.dumps(quotas, separators=(",", ":")) in words(result)


async def _resources(client: Any, command_id: int) -> None:
    [contents] = (await client.read_resource(f"debug-server://commands/{command_id}/log")).contents
    assert isinstance(contents, TextResourceContents)
    assert contents.text == "hello\n"
    [contents] = (await client.read_resource(f"debug-server://commands/{command_id}/log?offset=2&limit=3")).contents
    assert contents.text == "llo"
    assert contents.meta == {"offset": 2, "next_offset": 5, "log_bytes": 6, "ended": False}
    with pytest.raises(MCPError) as refused:
        await client.read_resource("debug-server://commands/999999/log")
    assert refused.value.data["code"] == "not_found"


async def _cancelled(client: Any, session_id: int) -> None:
    command = await call(client, "submit_command", session_id=session_id, argv=[*SH, "echo up; sleep 600"])
    waiting = await call(client, "wait_command", command_id=command["id"], wait_seconds=0.2)
    assert waiting["command"]["finished_at"] is None
    ended = await call(client, "cancel_command", command_id=command["id"])
    assert (ended["status"], ended["exit_reason"]) == ("cancelled", "cancelled")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_run_tells_progress_and_answers_with_a_digest(transport: str, tmp_path: Path, nothing_left: None) -> None:
    """`run` opens, runs and closes; meanwhile the progress names the command, grows, and quotes its newest line."""
    asyncio.run(_run_with_progress(transport, tmp_path))


async def _run_with_progress(transport: str, folder: Path) -> None:
    origin = remote(folder)
    told: list[tuple[float, str | None]] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))
        for step in re.findall(r"step \d", message or ""):
            (folder / step).touch()

    # Each step waits until it was told of.
    steps = f"for i in 1 2; do echo step $i; while [ ! -e '{folder}/step '$i ]; do sleep 0.05; done; done"
    script = f"{steps}; echo 'FAILED tests/a.py::test_x - boom'; exit 1"
    async with connected(transport, folder) as client:
        await call(client, "repository_init", name="sample", remote_url=str(origin.path))
        arguments = {"repository": "sample", "commit_sha": origin.commits[-1], "argv": [*SH, script]}
        result = await client.call_tool("run", arguments, progress_callback=progress)
        answer = reply_of(result)
        assert answer["command"]["exit_code"] == 1
        [failing] = answer["digest"]["failing"]
        assert failing["id"] == "tests/a.py::test_x"
        page = await call(client, "read_log", command_id=answer["command"]["id"], offset=failing["offset"])
        assert page["text"].startswith("FAILED tests/a.py::test_x")
        session = await call(client, "session_info", session_id=answer["session_id"])
        assert session["status"] not in {"active", "pending"}
    assert "failing tests (1)" in words(result)
    values = [value for value, _ in told]
    assert len(values) >= 3
    assert values == sorted(set(values))
    assert f"command {answer['command']['id']}" in (told[0][1] or "")
    assert any("step 2" in (message or "") for _, message in told)


def test_read_log_by_offset_text_and_end(tmp_path: Path, nothing_left: None) -> None:
    """Offsets join without loss or repeat across split characters; grep and tail give offsets that fit."""
    asyncio.run(_read_log(tmp_path))


async def _read_log(folder: Path) -> None:
    origin = remote(folder)
    script = 'for i in $(seq 1 3000); do echo "line $i: grüße"; done; echo "last Words"'
    expected = "".join(f"line {i}: grüße\n" for i in range(1, 3001)) + "last Words\n"
    async with connected("http", folder) as client:
        await call(client, "repository_init", name="sample", remote_url=str(origin.path))
        made = await call(client, "run", repository="sample", commit_sha="HEAD", argv=[*SH, script])
        command = made["command"]["id"]
        text, offset, ended = "", 0, False
        while not ended:
            page = await call(client, "read_log", command_id=command, offset=offset, limit=4001)
            text, offset, ended = text + page["text"], page["next_offset"], page["ended"]
        assert text == expected
        found = await call(client, "read_log", command_id=command, grep="line 1.*7:|last w", ignore_case=True)
        lines = [item["text"] for item in found["matches"]]
        assert lines[:2] == ["line 17: grüße", "line 107: grüße"]
        more = await call(client, "read_log", command_id=command, grep="LAST|WORDS", ignore_case=True)
        [match] = more["matches"]
        assert expected.encode()[match["offset"] : match["end"]] == b"last Words"
        first = await call(client, "read_log", command_id=command, grep="line", max_matches=2)
        second = await call(client, "read_log", command_id=command, grep="line", offset=first["next_offset"])
        assert second["matches"][0]["text"] == "line 3: grüße"
        tail = await call(client, "read_log", command_id=command, tail=2)
        assert tail["text"] == "line 3000: grüße\nlast Words\n"
        assert expected.encode()[tail["offset"] :].startswith(b"line 3000")
        past = await call(client, "read_log", command_id=command, offset=10**9)
        assert (past["text"], past["next_offset"]) == ("", 10**9)
        logs = await call(client, "session_logs", session_id=made["session_id"])
        assert logs["items"][0]["digest"] == (await call(client, "log_digest", command_id=command))["digest"]


def test_a_repeated_key_runs_once(tmp_path: Path, nothing_left: None) -> None:
    """`run` under the same idempotency key is one command, whichever connection repeats it."""
    asyncio.run(_repeated(tmp_path))


async def _repeated(folder: Path) -> None:
    origin = remote(folder)
    with http_server(folder) as server:
        seen: list[int] = []
        for _ in range(2):
            async with http_client(server) as client:
                if not seen:
                    await call(client, "repository_init", name="sample", remote_url=str(origin.path))
                answer = await call(
                    client, "run", repository="sample", commit_sha="HEAD", argv=["true"], idempotency_key="once"
                )
                seen.append(answer["command"]["id"])
        assert seen[0] == seen[1]


def test_a_stdio_server_leaves_with_its_client(tmp_path: Path, nothing_left: None) -> None:
    """The end of stdin ends the server although a call waits; the command carries on, and the next server has it."""
    origin = remote(tmp_path)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    run = {"repository": "sample", "commit_sha": "HEAD", "argv": [*SH, "echo up; sleep 600"]}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("initialize", hello),
        ("tools/call", {"name": "repository_init", "arguments": {"name": "sample", "remote_url": str(origin.path)}}),
        ("tools/call", {"name": "run", "arguments": run, "_meta": {"progressToken": 1}}),
    ]
    with subprocess.Popen(
        [*COMMAND, "stdio"], cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for number, (method, params) in enumerate(steps):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            child.stdin.write(json.dumps(message).encode() + b"\n")
            child.stdin.flush()
            answer = child.stdout.readline()
            if method == "initialize":
                child.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        while b": up" not in answer:
            answer = child.stdout.readline()
        child.stdin.close()
        assert child.wait(100) == 0
    asyncio.run(_found_again(tmp_path))


async def _found_again(folder: Path) -> None:
    async with stdio_client(folder) as client:
        [session] = (await call(client, "session_list"))["items"]
        [command] = (await call(client, "session_commands", session_id=session["id"]))["items"]
        assert command["status"] == "running"
        ended = await call(client, "cancel_command", command_id=command["id"])
        assert (ended["status"], ended["exit_reason"]) == ("cancelled", "cancelled")


def test_a_call_that_is_cut_off_leaves_the_command_running(tmp_path: Path, nothing_left: None) -> None:
    """The command outlives the connection that asked for it, and another one finds it."""
    asyncio.run(_cut_off(tmp_path))


async def _cut_off(folder: Path) -> None:
    origin = remote(folder)
    with http_server(folder) as server:
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            if "up" in (message or "") and not started.done():
                started.set_result(None)

        async with http_client(server) as client:
            await call(client, "repository_init", name="sample", remote_url=str(origin.path))
            arguments = {"repository": "sample", "commit_sha": "HEAD", "argv": [*SH, "echo up; sleep 600"]}
            asking = asyncio.create_task(client.call_tool("run", arguments, progress_callback=progress))
            await asyncio.wait_for(started, 100)
            asking.cancel()
            await asyncio.wait({asking})
        async with http_client(server) as client:
            [session] = (await call(client, "session_list"))["items"]
            [command] = (await call(client, "session_commands", session_id=session["id"]))["items"]
            assert command["status"] == "running"
            ended = await call(client, "cancel_command", command_id=command["id"])
            assert ended["status"] == "cancelled"
