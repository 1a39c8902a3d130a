"""The few verbs that the acceptance suite uses, over each interface of a server."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
from grpc import aio
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from websockets.asyncio.client import connect

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from tests.running import ROOT
from tests.servers import ServerProcess
from tests.surfaces.grpc.serving import Client as GrpcClient
from tests.surfaces.mcp.peers import call

SECONDS = 250.0


class Interface(ABC):
    """The verbs; each returns plain values."""

    @abstractmethod
    async def open(self, patch: str) -> int:
        """Open a session at the repository's commit with a patch; its id."""

    @abstractmethod
    async def run(self, session: int, script: str, artifact: str) -> int:
        """Submit a shell command that leaves an artifact; its id."""

    @abstractmethod
    async def follow(self, command: int) -> str:
        """Follow a log to its end; the text."""

    @abstractmethod
    async def end(self, command: int) -> tuple[str, str | None, int | None]:
        """Wait for the end; status, reason and exit code."""

    @abstractmethod
    async def cancel(self, command: int) -> str:
        """Cancel a command; its status."""

    @abstractmethod
    async def artifact(self, session: int, name: str) -> bytes:
        """The bytes of an artifact."""

    @abstractmethod
    async def diff(self, session: int) -> str:
        """The changes in the workspace."""

    @abstractmethod
    async def close(self, session: int) -> str:
        """Close a session; its status."""


def _argv(script: str) -> list[str]:
    return ["sh", "-c", script]


class Rest(Interface):
    """REST; the log by WebSocket."""

    def __init__(self, server: ServerProcess, http: httpx.AsyncClient) -> None:
        self._server = server
        self._http = http

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        response = await self._http.request(method, path, json=body)
        assert response.is_success, response.text
        return response.json()

    async def open(self, patch: str) -> int:
        body = {"repository": "project", "commit_sha": "main", "patch": patch}
        return int((await self._ask("POST", "/sessions", body))["id"])

    async def run(self, session: int, script: str, artifact: str) -> int:
        body = {"argv": _argv(script), "artifacts": [artifact]}
        return int((await self._ask("POST", f"/sessions/{session}/commands", body))["id"])

    async def follow(self, command: int) -> str:
        url = f"ws://127.0.0.1:{self._server.port}/commands/{command}/log"
        headers = {"Authorization": f"Bearer {self._server.token}"}
        async with connect(url, additional_headers=headers, open_timeout=SECONDS, ping_timeout=SECONDS) as socket:
            return "".join([json.loads(message)["text"] async for message in socket])

    async def end(self, command: int) -> tuple[str, str | None, int | None]:
        found = await self._ask("GET", f"/commands/{command}/wait")
        return found["status"], found["exit_reason"], found["exit_code"]

    async def cancel(self, command: int) -> str:
        return str((await self._ask("POST", f"/commands/{command}/cancel", {}))["status"])

    async def artifact(self, session: int, name: str) -> bytes:
        listed = (await self._ask("GET", f"/sessions/{session}/artifacts"))["items"]
        (number,) = [item["id"] for item in listed if item["name"] == name]
        return (await self._http.get(f"/sessions/{session}/artifacts/{number}")).content

    async def diff(self, session: int) -> str:
        return str((await self._ask("GET", f"/sessions/{session}/diff"))["patch"])

    async def close(self, session: int) -> str:
        await self._ask("DELETE", f"/sessions/{session}")
        return str((await self._ask("GET", f"/sessions/{session}"))["status"])


class Sse(Rest):
    """REST; the log by server-sent events."""

    async def follow(self, command: int) -> str:
        said = []
        async with self._http.stream("GET", f"/commands/{command}/log/events") as response:
            event = ""
            async for line in response.aiter_lines():
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: ") and event == "log":
                    said.append(json.loads(line.removeprefix("data: "))["text"])
        assert event == "end"
        return "".join(said)


class Grpc(Interface):
    """gRPC."""

    def __init__(self, client: GrpcClient) -> None:
        self._client = client

    async def open(self, patch: str) -> int:
        return int((await self._client.ask("OpenSession", repository="project", commit_sha="main", patch=patch)).id)

    async def run(self, session: int, script: str, artifact: str) -> int:
        made = await self._client.ask("SubmitCommand", session_id=session, argv=_argv(script), artifacts=[artifact])
        return int(made.id)

    async def follow(self, command: int) -> str:
        pieces = [piece.data async for piece in self._client.follow("FollowLog", command_id=command)]
        return b"".join(pieces).decode()

    async def end(self, command: int) -> tuple[str, str | None, int | None]:
        found = await self._client.ask("WaitCommand", command_id=command)
        return found.status, found.exit_reason, found.exit_code

    async def cancel(self, command: int) -> str:
        return str((await self._client.ask("CancelCommand", command_id=command)).status)

    async def artifact(self, session: int, name: str) -> bytes:
        listed = await self._client.ask("ListArtifacts", session_id=session)
        (number,) = [item.id for item in listed.items if item.name == name]
        chunks = self._client.follow("FetchArtifact", session_id=session, artifact_id=number)
        return b"".join([chunk.data async for chunk in chunks])

    async def diff(self, session: int) -> str:
        return str((await self._client.ask("DiffSession", session_id=session)).patch)

    async def close(self, session: int) -> str:
        await self._client.ask("CloseSession", session_id=session)
        return str((await self._client.ask("GetSession", session_id=session)).status)


class Mcp(Interface):
    """The Model Context Protocol."""

    def __init__(self, client: McpClient) -> None:
        self._client = client

    async def open(self, patch: str) -> int:
        opened = await call(self._client, "session_create", repository="project", commit_sha="main", patch=patch)
        return int(opened["id"])

    async def run(self, session: int, script: str, artifact: str) -> int:
        made = await call(self._client, "submit_command", session_id=session, argv=_argv(script), artifacts=[artifact])
        return int(made["id"])

    async def follow(self, command: int) -> str:
        await call(self._client, "wait_command", command_id=command, wait_seconds=SECONDS)
        return str((await call(self._client, "read_log", command_id=command))["text"])

    async def end(self, command: int) -> tuple[str, str | None, int | None]:
        found = (await call(self._client, "wait_command", command_id=command))["command"]
        return found["status"], found["exit_reason"], found["exit_code"]

    async def cancel(self, command: int) -> str:
        return str((await call(self._client, "cancel_command", command_id=command))["status"])

    async def artifact(self, session: int, name: str) -> bytes:
        listed = (await call(self._client, "list_artifacts", session_id=session))["items"]
        (number,) = [item["id"] for item in listed if item["name"] == name]
        part = await call(self._client, "read_artifact", session_id=session, artifact_id=number)
        data = str(part["data"])
        return base64.b64decode(data) if part["encoding"] == "base64" else data.encode()

    async def diff(self, session: int) -> str:
        return str((await call(self._client, "session_diff", session_id=session))["patch"])

    async def close(self, session: int) -> str:
        await call(self._client, "session_close", session_id=session)
        return str((await call(self._client, "session_info", session_id=session))["status"])


class Cli(Interface):
    """The command line, in a process for each verb."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self._folder = folder
        self._environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DEBUG_SERVER_HOME": str(folder / "home"),
            "DEBUG_SERVER_URL": server.base_url,
            "DEBUG_SERVER_TOKEN": server.token,
        }

    async def _run(self, *words: object, stdin: str = "") -> bytes:
        child = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "debug_server", *map(str, words)],
            cwd=self._folder,
            env=self._environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(child.communicate(stdin.encode()), SECONDS)
        assert child.returncode in (0, 3, 130), err.decode()
        return out

    async def _ask(self, *words: object, stdin: str = "") -> Any:
        return json.loads(await self._run("--json", *words, stdin=stdin))

    async def open(self, patch: str) -> int:
        found = await self._ask(
            *("session", "create", "--repository", "project", "--commit", "main", "--patch", "-"), stdin=patch
        )
        return int(found["id"])

    async def run(self, session: int, script: str, artifact: str) -> int:
        words = ("command", "submit", session, "--artifact", artifact, "--", *_argv(script))
        return int((await self._ask(*words))["id"])

    async def follow(self, command: int) -> str:
        return (await self._run("logs", command, "--follow", "--raw")).decode()

    async def end(self, command: int) -> tuple[str, str | None, int | None]:
        found = await self._ask("command", "wait", command)
        return found["status"], found["exit_reason"], found["exit_code"]

    async def cancel(self, command: int) -> str:
        return str((await self._ask("command", "cancel", command))["status"])

    async def artifact(self, session: int, name: str) -> bytes:
        listed = (await self._ask("artifact", "list", session))["items"]
        (number,) = [item["id"] for item in listed if item["name"] == name]
        target = self._folder / f"artifact-{number}"
        await self._run("artifact", "download", session, number, "--output", target)
        return target.read_bytes()

    async def diff(self, session: int) -> str:
        return (await self._run("session", "diff", session)).decode()

    async def close(self, session: int) -> str:
        await self._run("session", "close", session)
        return str((await self._ask("session", "show", session))["status"])


class AsyncSdk(Interface):
    """The asynchronous client."""

    def __init__(self, client: AsyncDebugServerClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    async def open(self, patch: str) -> int:
        return (await self._client.open_session("project", "main", patch=patch)).id

    async def run(self, session: int, script: str, artifact: str) -> int:
        return (await self._client.submit_command(session, _argv(script), artifacts=[artifact])).id

    async def follow(self, command: int) -> str:
        return b"".join([piece.data async for piece in self._client.follow_log(command)]).decode()

    async def end(self, command: int) -> tuple[str, str | None, int | None]:
        found = await self._client.wait_command(command)
        return found.status, found.exit_reason, found.exit_code

    async def cancel(self, command: int) -> str:
        return (await self._client.cancel_command(command)).status

    async def artifact(self, session: int, name: str) -> bytes:
        (number,) = [item.id for item in await self._client.list_artifacts(session) if item.name == name]
        return (await self._client.download_artifact(session, number, self._folder / "got")).read_bytes()

    async def diff(self, session: int) -> str:
        return (await self._client.diff_session(session)).patch

    async def close(self, session: int) -> str:
        await self._client.close_session(session)
        return (await self._client.get_session(session)).status


class Sdk(Interface):
    """The synchronous client."""

    def __init__(self, client: DebugServerClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    async def open(self, patch: str) -> int:
        return self._client.open_session("project", "main", patch=patch).id

    async def run(self, session: int, script: str, artifact: str) -> int:
        return self._client.submit_command(session, _argv(script), artifacts=[artifact]).id

    async def follow(self, command: int) -> str:
        return b"".join(piece.data for piece in self._client.follow_log(command)).decode()

    async def end(self, command: int) -> tuple[str, str | None, int | None]:
        found = self._client.wait_command(command)
        return found.status, found.exit_reason, found.exit_code

    async def cancel(self, command: int) -> str:
        return self._client.cancel_command(command).status

    async def artifact(self, session: int, name: str) -> bytes:
        (number,) = [item.id for item in self._client.list_artifacts(session) if item.name == name]
        return self._client.download_artifact(session, number, self._folder / "got").read_bytes()

    async def diff(self, session: int) -> str:
        return self._client.diff_session(session).patch

    async def close(self, session: int) -> str:
        self._client.close_session(session)
        return self._client.get_session(session).status


def _http(server: ServerProcess) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {server.token}"}
    return httpx.AsyncClient(base_url=server.base_url, headers=headers, timeout=SECONDS)


@asynccontextmanager
async def _rest(server: ServerProcess, folder: Path) -> AsyncIterator[Interface]:
    async with _http(server) as http:
        yield Rest(server, http)


@asynccontextmanager
async def _sse(server: ServerProcess, folder: Path) -> AsyncIterator[Interface]:
    async with _http(server) as http:
        yield Sse(server, http)


@asynccontextmanager
async def _grpc(server: ServerProcess, folder: Path) -> AsyncIterator[Interface]:
    async with aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield Grpc(GrpcClient(channel, server.token))


@asynccontextmanager
async def _mcp_http(server: ServerProcess, folder: Path) -> AsyncIterator[Interface]:
    headers = {"Authorization": f"Bearer {server.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http:
        transport = streamable_http_client(f"{server.base_url}/mcp?toolsets=all", http_client=http)
        async with McpClient(transport, read_timeout_seconds=SECONDS) as client:
            yield Mcp(client)


@asynccontextmanager
async def _mcp_stdio(server: ServerProcess, folder: Path) -> AsyncIterator[Interface]:
    environ = {**os.environ, **server.variables, "PYTHONPATH": str(ROOT), "DEBUG_SERVER_HOME": "/nonexistent"}
    child = StdioServerParameters(
        command=sys.executable, args=["-m", "debug_server", "mcp", "--toolsets", "all"], env=environ, cwd=server.root
    )
    async with McpClient(child, read_timeout_seconds=SECONDS) as client:
        yield Mcp(client)


@asynccontextmanager
async def _cli(server: ServerProcess, folder: Path) -> AsyncIterator[Interface]:
    yield Cli(server, folder)


@asynccontextmanager
async def _sdk(server: ServerProcess, folder: Path) -> AsyncIterator[Interface]:
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        yield Sdk(client, folder)


@asynccontextmanager
async def _async_sdk(server: ServerProcess, folder: Path) -> AsyncIterator[Interface]:
    async with AsyncDebugServerClient(base_url=server.base_url, token=server.token) as client:
        yield AsyncSdk(client, folder)


INTERFACES: dict[str, Callable[[ServerProcess, Path], AbstractAsyncContextManager[Interface]]] = {
    "rest+websocket": _rest,
    "sse": _sse,
    "grpc": _grpc,
    "mcp-stdio": _mcp_stdio,
    "mcp-http": _mcp_http,
    "cli": _cli,
    "sdk": _sdk,
    "async-sdk": _async_sdk,
}
