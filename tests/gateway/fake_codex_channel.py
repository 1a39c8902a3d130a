"""Channels to the fake codex without a supervisor: a real process on pipes, or scripted bytes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from debug_server.errors import WorkerExitedError
from debug_server.workers.codex import CodexConversation, CodexOptions

FAKE = Path(__file__).with_name("fake_codex.py")


class PipeChannel:
    """A process's own pipes as a channel."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self, data: bytes) -> None:
        """To its stdin."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            await self.process.stdin.drain()
        except OSError as error:
            raise WorkerExitedError("the worker is gone") from error

    async def receive(self) -> bytes:
        """From its stdout."""
        assert self.process.stdout is not None
        return await self.process.stdout.read(1 << 16)


@contextlib.asynccontextmanager
async def spawned(environ: Mapping[str, str] | None = None) -> AsyncIterator[PipeChannel]:
    """The fake worker for the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(FAKE), "app-server"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", **(environ or {})},
    )
    try:
        yield PipeChannel(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # reads what is left: a pipe that is too full to be read further never ends


@contextlib.asynccontextmanager
async def conversing(
    environ: Mapping[str, str] | None = None, options: CodexOptions | None = None
) -> AsyncIterator[tuple[CodexConversation, PipeChannel]]:
    """A conversation with the fake worker, its handshake done."""
    async with spawned(environ) as channel:
        conversation = CodexConversation(channel, options or CodexOptions(handshake_seconds=60, request_seconds=60))
        try:
            await conversation.open()
            yield conversation, channel
        finally:
            await conversation.close()


class ScriptedChannel:
    """Bytes that a test feeds, and the lines that were sent."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.sent: list[bytes] = []
        self.room = asyncio.Event()
        self.room.set()

    def feed(self, data: bytes) -> None:
        """As if the worker had written it; empty is its end."""
        self._pieces.put_nowait(data)

    async def send(self, data: bytes) -> None:
        """Waits while there is no room."""
        await self.room.wait()
        self.sent.append(data)

    async def receive(self) -> bytes:
        """The next piece."""
        return await self._pieces.get()
