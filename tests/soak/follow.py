"""Followers over every transport that are disconnected at random while their server is killed and started again.

Each follower reads up to a random number of bytes, drops its connection and goes on by offset, as often as the campaign
says; then it reads to the end. What it has must be what the command wrote. All follow one command at the same time.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import sys
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import httpx2
from grpc import aio
from mcp import Client as McpClient
from mcp import MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import LATEST_MODERN_VERSION
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.errors import UnavailableError
from tests.repositories import make_repository
from tests.running import SETTINGS_HERE
from tests.servers import ServerProcess, serving
from tests.surfaces.grpc.serving import Client as GrpcClient
from tests.surfaces.mcp.peers import ToolFailed, call

_SECONDS = 1200.0
_PAGE = 1 << 18
_AWAY = (
    *(OSError, httpx.HTTPError, httpx2.HTTPError, WebSocketException, aio.AioRpcError),
    *(MCPError, ToolFailed, UnavailableError),
)
_WRITER = """
import os, random, sys, time
source, left, pause = random.Random(int(sys.argv[2])), int(sys.argv[1]), float(sys.argv[3])
while left > 0:
    data = source.randbytes(32768).hex().encode()[:left]
    left -= len(data)
    while data:
        data = data[os.write(1, data):]
    time.sleep(pause)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """How much, how often."""

    size: int
    cuts: int
    kills: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What one follower got."""

    transport: str
    received: int
    cuts: int
    identical: bool

    def __str__(self) -> str:
        verdict = "identical" if self.identical else "DIFFERENT"
        return f"{self.transport:<10} {self.received:>12} bytes {self.cuts:>4} cuts  {verdict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server is, and is again after each kill."""

    root: Path
    port: int
    grpc_port: int
    token: str

    @property
    def base_url(self) -> str:
        """Over HTTP."""
        return f"http://127.0.0.1:{self.port}"


Source = Callable[[Address, int, int], AsyncGenerator[bytes, None]]


def _headers(server: Address) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.token}"}


async def _websocket(server: Address, command: int, offset: int) -> AsyncGenerator[bytes, None]:
    url = f"ws://127.0.0.1:{server.port}/commands/{command}/log?encoding=base64&offset={offset}"
    async with connect(url, additional_headers=_headers(server), max_size=None, compression=None) as socket:
        async for message in socket:
            yield base64.b64decode(json.loads(message)["data"])
    if socket.close_code != 1000:
        raise OSError(f"closed with {socket.close_code}")


async def _lines(server: Address, path: str) -> AsyncGenerator[str, None]:
    async with (
        httpx.AsyncClient(base_url=server.base_url, headers=_headers(server), timeout=60) as http,
        http.stream("GET", path) as response,
    ):
        response.raise_for_status()
        async for line in response.aiter_lines():
            yield line


async def _sse(server: Address, command: int, offset: int) -> AsyncGenerator[bytes, None]:
    event = ""
    async for line in _lines(server, f"/commands/{command}/log/events?encoding=base64&offset={offset}"):
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: ") and event == "log":
            yield base64.b64decode(json.loads(line.removeprefix("data: "))["data"])
    if event != "end":
        raise OSError("the stream was cut")


async def _ndjson(server: Address, command: int, offset: int) -> AsyncGenerator[bytes, None]:
    async for line in _lines(server, f"/commands/{command}/log.ndjson?follow=true&encoding=base64&offset={offset}"):
        yield base64.b64decode(json.loads(line)["data"])


async def _ranges(server: Address, command: int, offset: int) -> AsyncGenerator[bytes, None]:
    async with httpx.AsyncClient(base_url=server.base_url, headers=_headers(server), timeout=60) as http:
        while True:
            ended = (await http.get(f"/commands/{command}")).raise_for_status().json()["finished_at"] is not None
            async with http.stream(
                "GET", f"/commands/{command}/log", headers={"Range": f"bytes={offset}-{offset + (1 << 20)}"}
            ) as response:
                if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                    if ended:
                        return
                    await asyncio.sleep(0.05)
                    continue
                response.raise_for_status()
                async for data in response.aiter_raw():
                    offset += len(data)
                    yield data


async def _grpc(server: Address, command: int, offset: int) -> AsyncGenerator[bytes, None]:
    async with aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        client = GrpcClient(channel, server.token)
        async for piece in client.follow("FollowLog", seconds=_SECONDS, command_id=command, offset=offset):
            yield piece.data


async def _mcp(server: Address, command: int, offset: int) -> AsyncGenerator[bytes, None]:
    """A client for each page: its tasks cannot be left from inside a generator."""
    while True:
        page = await _mcp_page(server, command, offset)
        offset = int(page["next_offset"])
        if page["text"]:
            yield page["text"].encode()
        elif page["ended"]:
            return
        else:
            await asyncio.sleep(0.05)


async def _mcp_page(server: Address, command: int, offset: int) -> dict[str, Any]:
    async with httpx2.AsyncClient(headers=_headers(server), timeout=60) as http:
        transport = streamable_http_client(f"{server.base_url}/mcp", http_client=http)
        # Without the question which protocol to speak: it is the same for each page.
        async with McpClient(transport, mode=LATEST_MODERN_VERSION, read_timeout_seconds=60) as client:
            return await call(client, "read_log", command_id=command, offset=offset, limit=_PAGE)


async def _sdk(server: Address, command: int, offset: int) -> AsyncGenerator[bytes, None]:
    async with AsyncDebugServerClient(base_url=server.base_url, token=server.token) as client:
        async for piece in client.follow_log(command, offset=offset):
            yield piece.data


async def _cli(server: Address, command: int, offset: int) -> AsyncGenerator[bytes, None]:
    words = ["--base-url", server.base_url, "--token", server.token, "logs", str(command), "-f", "--raw"]
    child = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "debug_server", *words, "--offset", str(offset)],
        cwd=server.root,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert child.stdout is not None
    try:
        while data := await child.stdout.read(1 << 16):
            yield data
        if status := await child.wait():
            raise OSError(f"logs -f ended with {status}")
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.communicate()  # reads what is left: a pipe that is too full to be read further never ends


TRANSPORTS: dict[str, Source] = {
    "websocket": _websocket,
    "sse": _sse,
    "ndjson": _ndjson,
    "range": _ranges,
    "grpc": _grpc,
    "mcp": _mcp,
    "sdk": _sdk,
    "cli": _cli,
}


async def run(root: Path, campaign: Campaign, *, spread: bool = False) -> list[Followed]:
    """Everything: a server, a command that writes, a follower for each transport, kills.

    ``spread`` gives each follower a process of its own: else the campaign's one loop is slower than the server.
    """
    with serving(root / "server", variables=SETTINGS_HERE, grpc=True) as server:
        path = make_repository(root / "project")
        pause = 3.0 * campaign.kills / (campaign.size / 65536)  # it writes for as long as servers are killed
        argv = [sys.executable, "-I", "-S", "-c", _WRITER, str(campaign.size), str(campaign.seed), str(pause)]
        with DebugServerClient(base_url=server.base_url, token=server.token) as client:
            client.register_repository("project", str(path))
            command = client.start_run("project", "main", argv).command.id
        address = Address(root=server.root, port=server.port, grpc_port=server.grpc_port, token=server.token)
        async with asyncio.timeout(_SECONDS):
            following = _apart(address, command, campaign) if spread else _together(address, command, campaign)
            found, _ = await asyncio.gather(following, _kill(server, campaign))
    return found


async def _together(address: Address, command: int, campaign: Campaign) -> list[Followed]:
    return await asyncio.gather(*(_follow(name, address, command, campaign) for name in TRANSPORTS))


async def _apart(address: Address, command: int, campaign: Campaign) -> list[Followed]:
    loop = asyncio.get_running_loop()
    # Spawned, not forked: gRPC has threads.
    with ProcessPoolExecutor(len(TRANSPORTS), mp_context=get_context("spawn")) as processes:
        following = [
            loop.run_in_executor(processes, _in_process, name, address, command, campaign) for name in TRANSPORTS
        ]
        return await asyncio.gather(*following)


def _in_process(name: str, address: Address, command: int, campaign: Campaign) -> Followed:
    return asyncio.run(asyncio.wait_for(_follow(name, address, command, campaign), _SECONDS))


async def _kill(server: ServerProcess, campaign: Campaign) -> None:
    rng = random.Random(campaign.seed)
    for _ in range(campaign.kills):
        await asyncio.sleep(rng.uniform(0.3, 2.0))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)


async def _follow(name: str, server: Address, command: int, campaign: Campaign) -> Followed:
    rng, digest, offset, cuts = random.Random(f"{name}-{campaign.seed}"), hashlib.sha256(), 0, 0
    most = max(1, 14 * campaign.size // (10 * (campaign.cuts + 1)))  # all cuts, before all bytes
    while True:
        left = rng.randrange(1, most) if cuts < campaign.cuts else None
        try:
            async with aclosing(TRANSPORTS[name](server, command, offset)) as pieces:
                async for data in pieces:
                    digest.update(data)
                    offset += len(data)
                    if left is not None and (left := left - len(data)) <= 0:
                        cuts += 1
                        break
                else:
                    same = offset == campaign.size and digest.hexdigest() == _expected(campaign)
                    return Followed(transport=name, received=offset, cuts=cuts, identical=same)
        except* _AWAY:  # some transports raise in groups
            pass
        await asyncio.sleep(0.02)


def _expected(campaign: Campaign) -> str:
    source, left, digest = random.Random(campaign.seed), campaign.size, hashlib.sha256()
    while left > 0:
        data = source.randbytes(32768).hex().encode()[:left]
        left -= len(data)
        digest.update(data)
    return digest.hexdigest()
