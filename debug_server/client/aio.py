"""The asynchronous client; it has the same methods as the blocking client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import httpx

from debug_server.client import calls
from debug_server.client.calls import Call
from debug_server.client.connection import DEFAULT_BASE_URL, client_settings
from debug_server.client.downloaded_file import writing
from debug_server.client.exchange import Exchange, Pause, client_options, require_open
from debug_server.client.following import EventStream, LineSplitter, LogStream, ResumableStream
from debug_server.client.paging import Paging
from debug_server.client.sync import PAGE_BYTES
from debug_server.client.verbs import Verbs
from debug_server.client.waiting import E, Waiting
from debug_server.errors import UnavailableError
from debug_server.messages import CommandReply, EventReply, Items, LogPage, LogPiece
from debug_server.messages.tasks import RunnerTask
from debug_server.sockets.trust import HttpTrust

T = TypeVar("T")


class AsyncDebugServerClient(Verbs):
    """A client of one server for one event loop. An asynchronous context manager."""

    def __init__(
        self,
        *,
        base_url: str | None = None,
        token: str | None = None,
        verify_tls: bool | None = None,
        timeout: float = 30.0,
        server_uid: int | None = None,
    ) -> None:
        """A client of the server at ``base_url``.

        What is left out is taken from ``DEBUG_SERVER_URL``, ``DEBUG_SERVER_TOKEN``, ``DEBUG_SERVER_VERIFY_TLS`` and
        ``DEBUG_SERVER_UID``, then from the file that ``debug-server configure`` writes in ``DEBUG_SERVER_HOME``
        (``~/.debug-server``). The default URL is ``http://127.0.0.1:8000``. A client with both ``base_url`` and
        ``token`` looks nothing up; the token ``""`` sends none. ``timeout`` is the seconds for one answer, beyond
        those that a request waits for a command. ``server_uid`` is the user id of a local server that runs as neither
        you nor root.
        """
        found = client_settings(base_url, token, verify_tls=verify_tls, server_uid=server_uid)
        self.base_url = found.base_url or DEFAULT_BASE_URL
        self._timeout = timeout
        trust = HttpTrust(found.trusted, connection_error=httpx.ConnectError)
        options = client_options(
            self.base_url, found.token, verify_tls=found.verify_tls, timeout=timeout, before=trust.async_hook
        )
        self._http = httpx.AsyncClient(**options)

    async def send(self, call: Call[T]) -> T:
        """Perform one operation; network failures are retried, which is safe because requests are idempotent."""
        require_open(self._http)
        exchange = Exchange(call, self.base_url, self._timeout)
        while True:
            try:
                found = exchange.reply_or_pause(await self._http.request(**exchange.request))
            except httpx.TransportError as error:
                found = exchange.pause_after_network_error(error)
            if not isinstance(found, Pause):
                return found
            await asyncio.sleep(found.seconds)

    async def pages(self, call: Call[Items[T]]) -> AsyncIterator[T]:
        """The items of a list, page after page; the call's ``limit`` bounds all of them together."""
        paging = Paging(call)
        while (call_of_page := paging.next_call) is not None:
            for item in paging.take(await self.send(call_of_page)):
                yield item

    async def wait_command(self, command_id: int, *, seconds: float | None = None) -> CommandReply:
        """Wait until a command has ended; with ``seconds`` at most so long, and then ``ended`` may be False.

        Survives lost connections and server restarts.
        """
        return await self._wait(Waiting(lambda left: calls.wait_command(command_id, seconds=left), seconds))

    async def wait_task(self, task_id: str, *, seconds: float | None = None) -> RunnerTask:
        """Wait until a host task has ended; with ``seconds`` at most so long, and then ``ended`` may be False."""
        return await self._wait(Waiting(lambda left: calls.wait_task(task_id, seconds=left), seconds))

    async def _wait(self, waiting: Waiting[E]) -> E:
        while True:
            try:
                reply = await self.send(waiting.call())
            except UnavailableError as error:
                pause = waiting.pause_without_answer(error)
            else:
                if (found := waiting.pause_after(reply)) is None:
                    return reply
                pause = found
            await asyncio.sleep(pause.seconds)

    async def read_log(self, command_id: int, *, offset: int = 0, limit: int = PAGE_BYTES) -> LogPage:
        """About ``limit`` bytes of a log from an offset, in whole pieces."""
        command = await self.send(calls.get_command(command_id))
        pieces, next_offset = [], offset
        async with aclosing(self.stored_log(command_id, offset=offset)) as stored:  # type: ignore[type-var]
            async for piece in stored:
                pieces.append(piece)
                next_offset = piece.end
                if next_offset - offset >= limit:
                    break
        return LogPage(pieces=pieces, next_offset=next_offset, ended=command.ended and next_offset >= command.log_bytes)

    def stored_log(self, command_id: int, *, offset: int = 0) -> AsyncIterator[LogPiece]:
        """A log from an offset to its current end."""
        return self._pieces(command_id, offset, follow=False)

    def follow_log(self, command_id: int, *, offset: int = 0) -> AsyncIterator[LogPiece]:
        """A log from an offset until the command has ended; survives lost connections and server restarts."""
        return self._pieces(command_id, offset, follow=True)

    def stored_task_log(self, task_id: str, *, offset: int = 0) -> AsyncIterator[LogPiece]:
        """A host task's output from an offset to its current end."""
        return self._log("follow_task_log", {"task_id": task_id}, offset, follow=False)

    def follow_task_log(self, task_id: str, *, offset: int = 0) -> AsyncIterator[LogPiece]:
        """A host task's output from an offset until it has ended; survives lost connections and server restarts."""
        return self._log("follow_task_log", {"task_id": task_id}, offset, follow=True)

    def _pieces(self, command_id: int, offset: int, *, follow: bool) -> AsyncIterator[LogPiece]:
        return self._log("follow_log", {"command_id": command_id}, offset, follow=follow)

    def _log(
        self, operation: str, named: dict[str, int | str], offset: int, *, follow: bool
    ) -> AsyncIterator[LogPiece]:
        base_url, timeout = self.base_url, self._timeout
        return self._resume(LogStream(operation, named, offset, follow=follow, base_url=base_url, timeout=timeout))

    async def stream_session_logs(self, session_id: int, *, follow: bool = True) -> AsyncIterator[LogPiece]:
        """The logs of a session's commands in order; with ``follow`` until all of them have ended."""
        last = 0
        while fresh := (await self.send(calls.list_commands(session_id, after=last))).items:
            for command in fresh:
                async for piece in self._pieces(command.id, 0, follow=follow):
                    yield piece
            last = fresh[-1].sequence

    def follow_events(
        self,
        *,
        after: int = 0,
        session_id: int | None = None,
        command_id: int | None = None,
        kind: str | None = None,
    ) -> AsyncIterator[EventReply]:
        """Events after a cursor, then new ones; the iterator does not end."""
        stream = EventStream(
            after=after,
            session_id=session_id,
            command_id=command_id,
            kind=kind,
            base_url=self.base_url,
            timeout=self._timeout,
        )
        return self._resume(stream)

    async def _resume(self, stream: ResumableStream[T]) -> AsyncIterator[T]:
        require_open(self._http)
        while True:
            try:
                async with self._http.stream(**stream.request()) as response:
                    if response.is_error:
                        await response.aread()
                    pause = stream.check_response(response)
                    if pause is None:
                        lines = LineSplitter()
                        async for data in response.aiter_bytes():
                            for line in lines.feed(data):
                                if (item := stream.parse_line(line)) is not None:
                                    yield item
                        if not stream.endless:
                            return
                        pause = Pause(seconds=0.1)
            except httpx.TransportError as error:
                pause = stream.interrupted(error)
            await asyncio.sleep(pause.seconds)

    async def download_artifact(
        self, session_id: int, artifact_id: int, target: Path | str, *, replace: bool = True
    ) -> Path:
        """Download an artifact into a file, whole or not at all; without ``replace``, the file must not exist."""
        require_open(self._http)
        exchange = Exchange(calls.artifact_file(session_id, artifact_id), self.base_url, self._timeout)
        while True:
            try:
                async with self._http.stream(**exchange.request) as response:
                    if response.is_success:
                        with writing(Path(target), replace=replace) as file:
                            async for data in response.aiter_bytes():
                                await asyncio.to_thread(file.write, data)
                        return Path(target)
                    await response.aread()
                    pause = exchange.pause_after_error(response)
            except httpx.TransportError as error:
                pause = exchange.pause_after_network_error(error)
            await asyncio.sleep(pause.seconds)

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncDebugServerClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
