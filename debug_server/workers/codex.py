"""The protocol of ``codex app-server`` over JSON-RPC: handshake, models, turns, and answers to what it asks.

    initialize -> initialized -> [ thread/start -> thread/inject_items -> turn/start -> events -> turn/completed ]*

Each turn has its own thread, which is closed afterwards. Requests of the worker are answered at once: declined, except
calls of functions that the client of the turn declared.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import debug_server
from debug_server.errors import DebugServerError, HandshakeError, WorkerError, WorkerTimeoutError
from debug_server.workers.codex_turn import Turn, TurnRequest
from debug_server.workers.interface import Handshake, WorkerChannel
from debug_server.workers.jsonrpc import JsonRpc, Params, RpcRefusal, Trace

PROTOCOL = "codex"
_PING_SECONDS = 10.0
_ANSWER_MESSAGES = (b"agentMessage", b"item/tool/call", b"turn/completed")  # messages that are part of an answer
_VERSION = re.compile(r"/(\d+\.\d+\S*)")
# These are not used; a worker that supports the option does not send them.
_UNWANTED = ["thread/started", "thread/status/changed", "account/rateLimits/updated", "remoteControl/status/changed"]
_DECLINED: Mapping[str, Any] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}, "scope": "turn"},
    "item/tool/requestUserInput": {"answers": {}},
    "mcpServer/elicitation/request": {"action": "decline"},
}
_NO_SUCH_TOOL = {"contentItems": [{"type": "inputText", "text": "the client has no such function"}], "success": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexOptions:
    """Timeouts and tracing of a conversation."""

    handshake_seconds: float = 15.0
    request_seconds: float = 120.0
    trace: Trace | None = None


def codex_handshake(options: CodexOptions) -> Handshake:
    """The handshake on a new channel; HandshakeError says what is wrong with the program."""

    async def handshake(channel: WorkerChannel) -> CodexConversation:
        conversation = CodexConversation(channel, options)
        try:
            await conversation.open()
        except BaseException:
            await conversation.close()
            raise
        return conversation

    return handshake


class CodexConversation:
    """One generation of the worker, from its handshake on."""

    def __init__(self, channel: WorkerChannel, options: CodexOptions) -> None:
        self._options = options
        self._rpc = JsonRpc(
            channel,
            on_notification=self._on_notification,
            on_request=self._on_request,
            on_lost=self._on_lost,
            on_oversized=self._on_oversized_line,
            trace=options.trace,
        )
        self._turns: dict[str, Turn] = {}  # by thread
        self._leaving: set[asyncio.Task[None]] = set()
        self._models: list[str] | None = None
        self.declined = 0  # requests of the worker's
        self.details: dict[str, Any] = {}

    @property
    def rpc(self) -> JsonRpc:
        """The JSON-RPC connection that the turns use."""
        return self._rpc

    @property
    def options(self) -> CodexOptions:
        """Timeouts and tracing."""
        return self._options

    async def open(self) -> None:
        """Shake hands, and check that the worker has the methods that turns need."""
        self._rpc.start()
        seconds = self._options.handshake_seconds
        about = {"name": "debug-server", "title": "debug-server", "version": debug_server.__version__}
        capabilities = {"experimentalApi": True, "optOutNotificationMethods": _UNWANTED}
        try:
            found = await self._rpc.call(
                "initialize", {"clientInfo": about, "capabilities": capabilities}, seconds=seconds
            )
            agent = str(found.get("userAgent", "")) if isinstance(found, dict) else ""
            version = _VERSION.search(agent)
            self.details = {"user_agent": agent, "version": version[1] if version else None, "protocol": PROTOCOL}
            await self._rpc.notify("initialized")
            await self._rpc.call("thread/loaded/list", {}, seconds=seconds)
        except WorkerTimeoutError as error:
            raise HandshakeError(f"no handshake within {seconds:g} s: {error}") from error
        except WorkerError as error:
            version_text = self.details.get("version") or "of unknown version"
            raise HandshakeError(
                f"codex {version_text} does not offer the thread and turn methods of `codex app-server`: "
                f"install a newer one, or name it in CODEX_BIN ({error})"
            ) from error

    async def ping(self) -> None:
        """Return if the worker answers."""
        await self._rpc.call("thread/loaded/list", {}, seconds=_PING_SECONDS)

    async def models(self) -> list[str]:
        """The worker's models, requested once."""
        if self._models is None:
            found = await self._rpc.call("model/list", {}, seconds=self._options.request_seconds)
            entries = found.get("data", []) if isinstance(found, dict) else []
            self._models = [str(item["id"]) for item in entries if isinstance(item, dict) and "id" in item]
        return self._models

    @asynccontextmanager
    async def turn(self, request: TurnRequest) -> AsyncIterator[Turn]:
        """One turn; leaving the block interrupts it if it has not ended, and always frees its thread."""
        turn = Turn(self._rpc, request, seconds=self._options.request_seconds, routes=self._turns)
        turn.begin()
        try:
            yield turn
        finally:
            # In a separate task: the turn must be interrupted even if the block is left by cancellation.
            leaving = asyncio.ensure_future(turn.leave())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            await asyncio.wait({leaving})  # not its result: close() cancels it
            self._free(turn)

    def _free(self, turn: Turn) -> None:
        if turn.thread_id is None or not self._rpc.is_open:
            return
        freeing = asyncio.ensure_future(turn.free())
        self._leaving.add(freeing)
        freeing.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Fail all waiting calls and turns, end all tasks."""
        await self._rpc.close()
        for task in list(self._leaving):
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def _on_notification(self, method: str, params: Params) -> None:
        if (turn := self._turns.get(str(params.get("threadId")))) is not None:
            turn.on_notification(method, params)

    def _on_oversized_line(self, ends: bytes) -> None:
        if not any(kind in ends for kind in _ANSWER_MESSAGES):
            return  # for example output of a command, which is not part of the answer
        for thread, turn in list(self._turns.items()):
            if json.dumps(thread).encode() in ends:
                turn.on_oversized_line()

    def _on_request(self, number: int | str, method: str, params: Params) -> Any:
        if method == "item/tool/call":
            turn = self._turns.get(str(params.get("threadId")))
            return None if turn is not None and turn.on_tool_call(number, params) else _NO_SUCH_TOOL
        self.declined += 1
        if method in _DECLINED:
            return _DECLINED[method]
        raise RpcRefusal(f"this client does not answer {method}")

    def _on_lost(self, error: DebugServerError) -> None:
        for turn in list(self._turns.values()):
            turn.on_lost(error)
