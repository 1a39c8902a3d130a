"""JSON-RPC over one generation of a worker: many calls at once, notifications, and requests that come from it.

    call() ---> outbox ---> one writer ---> channel.send
    channel.receive ---> lines ---> answer      -> the call with its id
                                    notification -> on_notification
                                    request      -> on_request -> outbox, before anything else is read

The reader never waits for the writer: a worker that blocks on its stdout does not read its stdin either.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from debug_server.errors import (
    DebugServerError,
    WorkerBusyError,
    WorkerError,
    WorkerExitedError,
    WorkerTimeoutError,
)
from debug_server.workers.interface import WorkerChannel
from debug_server.workers.line_splitter import LineSplitter

OVERLOADED = -32001
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
_RETRY_FIRST, _RETRY_MOST = 0.05, 2.0  # seconds between attempts with an overloaded worker
_HIGH_WATER = 4 << 20  # bytes in the outbox before calls have to wait
_MAX_OUTBOX = 10_000  # in the outbox; above that, the worker sends requests without reading the answers
# Of an oversized message only both ends are known: the id is first or last.
_BEGIN = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"[^"]*"\s*,\s*)?'
_ID = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{0,200}")\s*'
_FIRST_ID, _LAST_ID = re.compile(_BEGIN + _ID + b","), re.compile(rb",\s*" + _ID + rb"\}\s*$")
_IS_REQUEST = re.compile(_BEGIN + b"(?:" + _ID + rb',\s*)?"method"')

_LOG = logging.getLogger(__name__)

Params = Mapping[str, Any]
Trace = Callable[[str, Mapping[str, Any], int], None]  # direction, message, bytes


@dataclass(slots=True)
class RpcCounters:
    """Counters of messages."""

    calls: int = 0
    answers: int = 0
    notifications: int = 0
    requests: int = 0  # that the worker sent
    malformed: int = 0  # lines that are not a message, also an incomplete last one
    oversized: int = 0
    stray: int = 0  # answers without a waiting call, and announcements
    retries: int = 0  # after an overload

    def to_json(self) -> dict[str, int]:
        """As plain values."""
        return asdict(self)


class RpcRefusal(Exception):
    """Raised by ``on_request`` to answer with an error."""

    def __init__(self, message: str, number: int = METHOD_NOT_FOUND) -> None:
        super().__init__(message)
        self.number = number


class JsonRpc:
    """One connection; create it inside the event loop, then ``start`` it."""

    def __init__(
        self,
        channel: WorkerChannel,
        *,
        on_notification: Callable[[str, Params], None],
        on_request: Callable[[int | str, str, Params], Any],
        on_lost: Callable[[DebugServerError], None],
        on_oversized: Callable[[bytes], None] | None = None,
        trace: Trace | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``on_request`` returns the result, raises RpcRefusal, or returns None and calls ``answer`` later.

        ``on_oversized`` gets both ends of a line that was too long.
        """
        self._channel = channel
        self._on_notification = on_notification
        self._on_request = on_request
        self._on_lost = on_lost
        self._on_oversized = on_oversized
        self._trace = trace
        self._jitter = jitter
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._has_output = asyncio.Event()  # for the writer
        self._room = asyncio.Event()  # for calls
        self._room.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._lines = LineSplitter()
        self._lost: DebugServerError | None = None
        self.counters = RpcCounters()

    def start(self) -> None:
        """Start reading and writing."""
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._write())]

    @property
    def is_open(self) -> bool:
        """Whether calls can still be answered."""
        return self._lost is None

    async def call(self, method: str, params: Params, *, seconds: float) -> Any:
        """The result; retried until the deadline if the worker is overloaded.

        Raises WorkerError, WorkerTimeoutError, WorkerBusyError, or WorkerExitedError if the worker ends first.
        """
        wait = _RETRY_FIRST
        overloaded = False
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await self._call_once(method, params)
                    except WorkerError as error:
                        if error.number != OVERLOADED:
                            raise
                        overloaded = True
                        self.counters.retries += 1
                    await asyncio.sleep(wait * (0.5 + self._jitter()))
                    wait = min(wait * 2, _RETRY_MOST)
        except TimeoutError as error:
            if overloaded:
                raise WorkerBusyError(f"the worker was overloaded for {seconds:g} s: try again later") from error
            raise WorkerTimeoutError(f"the worker did not answer {method} within {seconds:g} s") from error

    async def _call_once(self, method: str, params: Params) -> Any:
        number = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            await self._put({"id": number, "method": method, "params": params})
            self.counters.calls += 1
            return await future
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification to the worker."""
        await self._put({"method": method} if params is None else {"method": method, "params": params})

    def answer(self, request_id: int | str, result: Any) -> None:
        """Answer a request of the worker's."""
        self._enqueue({"id": request_id, "result": result})

    def refuse(self, request_id: int | str, refusal: RpcRefusal) -> None:
        """Answer a request of the worker's with an error."""
        self._enqueue({"id": request_id, "error": {"code": refusal.number, "message": str(refusal)}})

    async def _put(self, message: Params) -> None:
        while not self._room.is_set():
            await self._room.wait()
        self._enqueue(message)

    def _enqueue(self, message: Params) -> None:
        if self._lost is not None:
            raise self._lost
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if self._trace is not None:
            self._trace("out", message, len(data))
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        self._has_output.set()
        if self._outbox_bytes >= _HIGH_WATER:
            self._room.clear()

    async def _write(self) -> None:
        with suppress(WorkerExitedError):  # the reader notices the end too, and fails all calls
            while True:
                await self._has_output.wait()
                while self._outbox:
                    data = self._outbox.popleft()
                    await self._channel.send(data)
                    self._outbox_bytes -= len(data)
                    if self._outbox_bytes < _HIGH_WATER:
                        self._room.set()
                self._has_output.clear()

    async def _read(self) -> None:
        try:
            while data := await self._channel.receive():
                for line in self._lines.feed(data):
                    self._report_oversized_lines()  # before what follows it
                    self._handle_line(line)
                self._report_oversized_lines()
                self.counters.oversized = self._lines.oversized
        except WorkerExitedError:
            pass
        except Exception:  # noqa: BLE001 - the boundary: a bug must not leave callers waiting forever
            _LOG.exception("json_rpc_reader_failed", extra={"component": "json_rpc"})
        if self._lines.pending:
            self._malformed(self._lines.pending)
        self._fail_all(WorkerExitedError("the worker ended before it had answered: try again"))

    def _report_oversized_lines(self) -> None:
        while self._lines.lost:
            ends = self._lines.lost.popleft()
            _LOG.warning("json_rpc_oversized_line", extra={"component": "json_rpc"})
            self._fail_oversized(ends)
            if self._on_oversized is not None:
                self._on_oversized(ends)

    def _fail_oversized(self, ends: bytes) -> None:
        """Fail the call of a lost answer, and refuse a lost request of the worker."""
        found = _FIRST_ID.match(ends) or _LAST_ID.search(ends)
        if found is None:
            return
        number = json.loads(found[1])
        if _IS_REQUEST.match(ends):
            self.refuse(number, RpcRefusal("the request was too long to be read", INVALID_REQUEST))
        elif (future := self._waiting.pop(number, None)) is not None and not future.done():
            bound = self._lines.limit
            future.set_exception(WorkerError(f"the worker's answer is too long to be read: more than {bound} bytes"))

    def _handle_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._malformed(len(line))
            return
        if self._trace is not None:
            self._trace("in", message, len(line))
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        params = params if isinstance(params, dict) else {}
        if isinstance(method, str) and isinstance(number, int | str):
            self._handle_request(number, method, params)
        elif isinstance(method, str):
            self.counters.notifications += 1
            self._on_notification(method, params)
        elif "result" in message or "error" in message:
            self._handle_answer(number, message)
        else:
            self.counters.stray += 1  # some workers announce themselves in a separate line

    def _malformed(self, size: int) -> None:
        self.counters.malformed += 1
        _LOG.warning("json_rpc_malformed_line", extra={"component": "json_rpc", "bytes": size})

    def _handle_answer(self, number: Any, message: Mapping[str, Any]) -> None:
        future = self._waiting.pop(number, None) if isinstance(number, int) else None
        if future is None or future.done():
            self.counters.stray += 1
            return
        self.counters.answers += 1
        error = message.get("error")
        if isinstance(error, dict):
            text, code = str(error.get("message", "no message")), error.get("code")
            future.set_exception(
                WorkerError(text, number=code if isinstance(code, int) else None, data=error.get("data"))
            )
        else:
            future.set_result(message.get("result"))

    def _handle_request(self, number: int | str, method: str, params: Params) -> None:
        self.counters.requests += 1
        if len(self._outbox) > _MAX_OUTBOX:
            self._fail_all(WorkerExitedError("the worker sends requests without reading the answers"))
            return
        try:
            result = self._on_request(number, method, params)
        except RpcRefusal as refusal:
            self.refuse(number, refusal)
            return
        if result is not None:
            self.answer(number, result)

    def _fail_all(self, error: DebugServerError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        self._room.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._on_lost(error)

    async def close(self) -> None:
        """Fail all waiting calls and end both tasks."""
        self._fail_all(WorkerExitedError("the worker was stopped before it had answered: try again"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
