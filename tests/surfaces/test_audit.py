"""The audit log: every request, refused or not, through every surface, under the name of its token."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc import aio

from debug_server.client import DebugServerClient
from debug_server.service.audit import AnonymousRecords, short
from tests.running import eventually
from tests.servers import ServerProcess, serving
from tests.surfaces.grpc.serving import Client

MANY = 4
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who_am_i", "arguments": {}}}
ACCEPT = {"Accept": "application/json, text/event-stream", "X-Request-Id": "mine-1"}


@pytest.fixture
def server(tmp_path: Path, nothing_left: None) -> Any:
    """A server that writes its audit log."""
    with serving(tmp_path / "server", grpc=True, log_level="INFO") as running:
        yield running


def _records(server: ServerProcess) -> list[dict[str, Any]]:
    lines = (server.root / "serve-1.err").read_text().split("\n")[:-1]  # the last one may be half written
    found = (json.loads(line) for line in lines if line.startswith("{"))  # the gRPC library writes lines of its own
    return [record for record in found if record.get("event") == "api.request"]


def _recorded(server: ServerProcess, **wanted: object) -> dict[str, Any]:
    """The first record that says all of this, as soon as it is written."""

    def find() -> dict[str, Any] | None:
        fitting = (record for record in _records(server) if wanted.items() <= record.items())
        return next(fitting, None)

    found: dict[str, Any] = eventually(find, what=f"a record of {wanted}")
    return found


async def _ask_often(port: int, token: str | None) -> None:
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        client = Client(channel, token)
        for _ in range(MANY):
            try:
                await client.ask("WhoAmI")
            except aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                return
    raise AssertionError("the rate was never refused")


def test_a_refused_rate_is_recorded_under_the_tokens_name(server: ServerProcess) -> None:
    """Over HTTP, MCP and gRPC: who asks too often is named in the record of the refusal."""
    with DebugServerClient(base_url=server.base_url, token=server.token) as admin:
        made = admin.create_token("eager", quotas={"requests_per_second": 0.001})
    headers = {"Authorization": f"Bearer {made.token}"}
    with httpx.Client(base_url=server.base_url, headers=headers, timeout=100) as http:
        assert [http.get("/whoami").status_code for _ in range(2)] == [200, 429]
        assert http.post("/mcp", json=CALL, headers=ACCEPT).status_code == 429
    asyncio.run(_ask_often(server.grpc_port, made.token))
    for wanted in (
        {"path": "/whoami", "status": 429},
        {"path": "/mcp", "status": 429},
        {"path": "/debug_server.v1.DebugServer/WhoAmI", "status": "RESOURCE_EXHAUSTED"},
    ):
        record = _recorded(server, **wanted)
        assert (record["token_name"], record["token_id"]) == ("eager", made.id), record


def test_the_two_records_of_a_tools_call_belong_together(server: ServerProcess) -> None:
    """The POST and the tool have the same token and the same request id."""
    headers = {"Authorization": f"Bearer {server.token}", **ACCEPT}
    with httpx.Client(base_url=server.base_url, headers=headers, timeout=100) as http:
        answer = http.post("/mcp", json=CALL)
        assert answer.status_code == 200, answer.text
    post, tool = _recorded(server, path="/mcp", status=200), _recorded(server, path="tools/who_am_i", method="MCP")
    assert post["token_name"] == tool["token_name"] == "admin"
    assert post["token_id"] == tool["token_id"] > 0
    assert post["request_id"] == tool["request_id"] == answer.headers["x-request-id"] == "mine-1"


def test_requests_without_a_caller_are_short_and_few(server: ServerProcess) -> None:
    """Of many requests with long paths some have a short record and the others are counted; none is missing."""
    many, path = 200, "/" + "%01" * 20_000
    began = time.monotonic()
    with httpx.Client(base_url=server.base_url, timeout=100) as http:
        for _ in range(many):
            assert http.get(path).status_code == 404
    seconds = int(time.monotonic() - began) + 2  # those that had begun before, and that end later
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.base_url, headers=headers, timeout=100) as http:
        assert http.get("/whoami").status_code == 200
    _recorded(server, path="/whoami", token_name="admin")

    def found() -> tuple[int, int]:
        lines = [line for line in server.log.read_text().split("\n")[:-1] if "/\\\\u0001" in line or "api.req" in line]
        records = [json.loads(line) for line in lines]
        short = [record for record in records if record["event"] == "api.request" and record["status"] == 404]
        assert all(len(json.dumps(record)) < 600 for record in short)
        left_out = [record for record in records if record["event"] == "api.requests_not_recorded"]
        return len(short), sum(record["statuses"].get("404", 0) for record in left_out)

    eventually(lambda: sum(found()) == many, what="a count of what was left out")
    assert found()[0] <= 10 * seconds


def test_how_many_are_recorded() -> None:
    """Ten in a second; those of the next second are recorded again."""
    now = [100.0]
    records = AnonymousRecords(lambda: now[0])
    assert [records.take(404) for _ in range(12)] == [True] * 10 + [False] * 2
    now[0] += 1
    assert records.take(404)


def test_short_paths() -> None:
    """A path stays as it is if the log can write it in 100 characters; else it is escaped and cut."""
    assert short("/commands/5") == "/commands/5"
    assert short("/" + "\x01" * 16) == "/" + "\x01" * 16
    assert short("/" + "\x01" * 20) == ("/" + "\\u0001" * 20)[:100] + "..."
    assert short("x" * 101) == "x" * 100 + "..."
