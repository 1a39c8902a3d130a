"""A server on a free loopback port with a repository behind it, and a client that knows the proto only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from debug_server.app import Local
from debug_server.messages import ListSessions, SessionRef
from debug_server.service import LOCAL, Service
from debug_server.surfaces.grpc import ConnectionLimits, build_server
from debug_server.surfaces.grpc.schema import rpc

SECONDS = 100.0


class Client:
    """Calls any rpc by name with its fields; the token travels as metadata."""

    def __init__(self, channel: aio.Channel, token: str | None) -> None:
        self.channel = channel
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def ask(self, name: str, /, *, key: str | None = None, seconds: float = SECONDS, **fields: Any) -> Any:
        """The reply to one call."""
        called = rpc(name)
        metadata = (*self._metadata, *((("idempotency-key", key),) if key else ()))
        call = self.channel.unary_unary(called.path, called.request.SerializeToString, called.reply.FromString)
        return await call(called.request(**fields), metadata=metadata, timeout=seconds)

    def follow(self, name: str, /, *, seconds: float = SECONDS, **fields: Any) -> Any:
        """The call of a streaming rpc, to be iterated or cancelled."""
        called = rpc(name)
        call = self.channel.unary_stream(called.path, called.request.SerializeToString, called.reply.FromString)
        return call(called.request(**fields), metadata=self._metadata, timeout=seconds)

    async def send(self, name: str, data: bytes, /, *, seconds: float = SECONDS) -> grpc.StatusCode:
        """The status with which the server answers these bytes as a request of ``name``."""
        open_call = self.channel.unary_stream if rpc(name).streams else self.channel.unary_unary
        call = open_call(rpc(name).path)(data, metadata=self._metadata, timeout=seconds)
        try:
            if rpc(name).streams:
                async for _ in call:
                    pass
            else:
                await call
        except aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a test works with."""

    service: Service
    admin: Client
    port: int
    client: Callable[[str | None], Client]  # another caller on the same channel

    async def token(self, *scopes: str) -> Client:
        """A caller with these scopes only."""
        made = await self.admin.ask("CreateToken", name=f"token-{'-'.join(scopes) or 'none'}", scopes=list(scopes))
        return self.client(made.token)

    async def session(self) -> int:
        """A new session of the repository's commit."""
        opened = await self.admin.ask("OpenSession", repository="project", commit_sha="HEAD")
        return int(opened.id)

    async def artifact(self, session: int, name: str) -> Any:
        """An artifact that a command of the session leaves, once it is kept."""
        async with asyncio.timeout(SECONDS):
            while True:
                for item in (await self.admin.ask("ListArtifacts", session_id=session)).items:
                    if item.name == name:
                        return item
                await asyncio.sleep(0.01)

    async def run(self, session: int, text: str, **fields: Any) -> Any:
        """A shell's command in a session."""
        return await self.admin.ask("SubmitCommand", session_id=session, argv=["sh", "-c", text], **fields)


@asynccontextmanager
async def serving(local: Local, repository: Path, limits: ConnectionLimits | None = None) -> AsyncIterator[Served]:
    """The server, started; its engine stopped and its calls ended afterwards."""
    server = build_server(local.service, port=0, limits=limits)
    local.engine.start()
    await server.start()
    _, secret = local.store.tokens.create("admin", ("admin",))
    try:
        async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            admin = Client(channel, secret)
            await admin.ask("RegisterRepository", name="project", remote_url=str(repository))
            yield Served(
                service=local.service, admin=admin, port=server.port, client=lambda token: Client(channel, token)
            )
    finally:
        await server.stop(0.0)
        await _clear(local)
        local.engine.stop()


async def _clear(local: Local) -> None:
    """End every session and unmount its workspace: the folder of the test can then be removed."""
    for session in (await local.service.sessions.page(LOCAL, ListSessions(limit=1000))).items:
        await local.service.sessions.close(LOCAL, SessionRef(session_id=session.id))
    for repository in local.store.repositories.page():  # also where a test removed or added one
        pool = local.sessions.pool(repository)
        await asyncio.to_thread(pool.reclaim_stale_worktrees, max_idle_age=timedelta(0))


async def refusal(call: Awaitable[Any]) -> tuple[grpc.StatusCode, dict[str, str]]:
    """The status and trailing metadata of a call that must fail."""
    try:
        reply = await call
    except aio.AioRpcError as error:
        return error.code(), dict(error.trailing_metadata())
    raise AssertionError(f"answered {reply}")


async def log_of(client: Client, command: int, offset: int = 0) -> bytes:
    """A command's whole log by following it."""
    return b"".join([piece.data async for piece in client.follow("FollowLog", command_id=command, offset=offset)])
