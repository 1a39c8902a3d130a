"""What 2,000 followers of one command cost, against 200: requests of others, and each line for each follower."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection

from benchmarks.figures import Result, Size, interleaved
from benchmarks.growth import Work, compared, verbs_compared
from benchmarks.processes import cpu_seconds
from benchmarks.service.followers import follow
from benchmarks.service.serving import Server, serving

R = TypeVar("R")

_FEW = {Size.FULL: 200, Size.QUICK: 100, Size.SMALLEST: 2}
_MANY = {Size.FULL: 2000, Size.QUICK: 1000, Size.SMALLEST: 4}
_REQUESTS = {Size.FULL: 50, Size.QUICK: 20, Size.SMALLEST: 1}  # of each verb, in a round
_ROUNDS = {Size.FULL: 5, Size.QUICK: 3, Size.SMALLEST: 1}
_LINES = {Size.FULL: 20, Size.QUICK: 10, Size.SMALLEST: 1}
_LINE_SECONDS = 60.0


def measure(size: Size) -> list[Result]:
    """Two servers, one with a tenth of the followers, in turns."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serving()) for _ in range(2)]
        crowds = [
            stack.enter_context(_crowd(server, count))
            for server, count in zip(servers, (_FEW[size], _MANY[size]), strict=True)
        ]
        few, many = ((crowd.server.pid, crowd.requests()) for crowd in crowds)
        results = verbs_compared("followers", few, many, requests=_REQUESTS[size], rounds=_ROUNDS[size])
        small, large = interleaved(*(crowd.line_for_each for crowd in crowds), rounds=_LINES[size])
        return [*results, compared("followers, a line for each of them", small, large)]


class _Crowd:
    """The followers of a command that writes what it is told."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self.server = server
        self._loop = loop
        self._connection = server.connect()
        session = self._connection.open_session()
        self._command = self._connection.ask("POST", f"/sessions/{session}/commands", {"argv": ["cat"], "stdin": True})
        self._numbers = itertools.count()
        self._followers: list[ClientConnection] = self._run(self._join(count))

    def requests(self) -> Mapping[str, Work]:
        """What others ask meanwhile."""
        argv = json.dumps({"argv": ["true"]}).encode()
        return {
            "exec": partial(self._connection.answer, "POST", "/exec", argv),
            "ps": partial(self._connection.answer, "GET", "/commands?status=pending&status=running"),
            "command, one": partial(self._connection.answer, "GET", f"/commands/{self._command['id']}"),
        }

    def line_for_each(self) -> float:
        """CPU time of the server for a line to one follower, once each of them has it."""
        before = cpu_seconds(self.server.pid)
        line = {"write_id": str(next(self._numbers)), "data": "a line\n"}
        self._connection.ask("POST", f"/commands/{self._command['id']}/stdin", line)
        self._run(self._receive())
        return (cpu_seconds(self.server.pid) - before) / len(self._followers)

    def close(self) -> None:
        """Let all of them leave, and end the command."""
        self._run(self._leave())
        self._connection.ask("POST", f"/commands/{self._command['id']}/cancel", {})
        self._connection.close()

    async def _join(self, count: int) -> list[ClientConnection]:
        return [await follow(self.server, self._command["id"]) for _ in range(count)]

    async def _receive(self) -> None:
        async with asyncio.timeout(_LINE_SECONDS):
            await asyncio.gather(*(follower.recv() for follower in self._followers))

    async def _leave(self) -> None:
        await asyncio.gather(*(follower.close() for follower in self._followers))

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def _crowd(server: Server, count: int) -> Iterator[_Crowd]:
    """A crowd whose connections have an event loop of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        crowd = _Crowd(server, loop, count)
        yield crowd
        crowd.close()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
