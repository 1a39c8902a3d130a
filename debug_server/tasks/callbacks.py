"""Sends the status of a task to its callback URL: when it starts and when it ends, in order, at least once.

    event --collector--> outbox --sender (one message of a task at a time)--> 2xx from the receiver --> removed
                           ^            |
                           +--backoff---+   given up after a day, or sooner if the receiver refuses

After a crash both loops continue where they stopped.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from debug_server.errors import AccessError, DebugServerError, InvalidInputError, NotFoundError
from debug_server.messages.tasks import RunnerTask, TaskStatus
from debug_server.model import EventHead, OutgoingMessage
from debug_server.service import Service
from debug_server.sockets.trust import HttpTrust, TrustedServerUser
from debug_server.tasks.targets import Target
from debug_server.tasks.tasks import CALLBACK, CALLBACK_TOKEN, Tasks
from debug_server.tasks.views import TASK

if TYPE_CHECKING:
    import httpx

_LOG = logging.getLogger(__name__)
TOPIC = "task_callbacks"
_STARTED = "command.started"
_ENDED = ("session.completed", "session.failed", "session.cancelled")
_PAGE = 1000
_TIMEOUT = 5.0
_FIRST_RETRY, _LAST_RETRY = 0.5, 60.0
_MAX_SENDING = 16
_GIVE_UP = timedelta(hours=24)
_REFUSED_ATTEMPTS = 3  # attempts, if the receiver answers 4xx
_RETRYABLE = (408, 425, 429)
_LOOK_AGAIN = 5.0
_BODY = (
    *("status", "message", "started_at", "finished_at", "exit_code", "stdout", "stderr", "container_id"),
    *("worktree_cleanup_attempted", "worktree_cleanup_succeeded", "worktree_cleanup_message"),
)


class Callbacks:
    """The callbacks of one server."""

    def __init__(self, service: Service, tasks: Tasks) -> None:
        self._service = service
        self._tasks = tasks
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Collect and send while the block runs."""
        await self._service.outbox.begin(TOPIC)
        loops = [asyncio.create_task(self._collect()), asyncio.create_task(self._send())]
        try:
            yield
        finally:
            for task in [*loops, *self._sending.values()]:
                task.cancel()
            await asyncio.gather(*loops, *self._sending.values(), return_exceptions=True)
            if self._client is not None:
                await self._client.aclose()

    # -- the collector ----------------------------------------------------------------------------------------------

    async def _collect(self) -> None:
        passed = 0  # events after the stored cursor that made no message; another server would read them again
        async for page in self._service.outbox.pages(TOPIC, _PAGE):
            messages = [found for event in page if (found := await self._message(event)) is not None]
            passed += len(page)
            if messages or passed >= _PAGE:
                await self._service.outbox.collect(TOPIC, page[-1].seq, messages)
                passed = 0
            if messages:
                self._changed.set()

    async def _message(self, event: EventHead) -> tuple[int, dict[str, Any]] | None:
        if event.session_id is None or (event.kind != _STARTED and event.kind not in _ENDED):
            return None
        if event.kind == _STARTED and event.subject is None:  # not a task's: those have subjects
            return None
        with suppress(NotFoundError):
            asked = (await self._service.sessions.metadata_of(event.session_id)).get(TASK)
            if isinstance(asked, dict) and CALLBACK in asked:
                status = "running" if event.kind == _STARTED else "ended"
                return event.session_id, {"task_id": asked["task_id"], "status": status, "seq": event.seq}
        return None

    # -- the sender -------------------------------------------------------------------------------------------------

    async def _send(self) -> None:
        while True:
            self._changed.clear()
            pause = _LOOK_AGAIN
            busy = set(self._sending)  # first: the read may return a message that is delivered meanwhile
            try:
                heads = await self._service.outbox.heads(TOPIC)
            except DebugServerError as error:  # the store is unavailable
                _LOG.warning("callbacks_not_read", extra={"error": str(error)})
                heads = []
            now = datetime.now(UTC)
            for message in heads:
                if message.lane in busy or len(self._sending) >= _MAX_SENDING:
                    continue
                if message.due_at > now:
                    pause = min(pause, (message.due_at - now).total_seconds())
                    continue
                task = asyncio.create_task(self._deliver(message))
                self._sending[message.lane] = task
                task.add_done_callback(self._done(message.lane))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    def _done(self, lane: int) -> Callable[[asyncio.Task[None]], None]:
        def forget(task: asyncio.Task[None]) -> None:
            del self._sending[lane]
            self._changed.set()
            if not task.cancelled() and (error := task.exception()) is not None:
                _LOG.error("callback_failed", extra={"session_id": lane, "error": repr(error)})

        return forget

    async def _deliver(self, message: OutgoingMessage) -> None:
        """Try once to deliver a message."""
        fields: dict[str, Any] = {"session_id": message.lane, "attempt": message.attempts + 1}
        level = logging.INFO
        try:
            status = await self._post(message)
        except InvalidInputError as error:  # the target is not allowed
            _LOG.warning("callback_refused", extra={**fields, "error": str(error)})
            await self._service.outbox.done(message)
            return
        except AccessError as error:  # another user has the receiver's port: perhaps not for long
            reason, permanent, level = str(error), False, logging.WARNING
        except Exception as error:  # noqa: BLE001 - whatever fails, the message is tried again
            reason, permanent = str(error) or type(error).__name__, False
        else:
            if 200 <= status < 300:
                await self._service.outbox.done(message)
                return
            reason = f"the receiver answered {status}"
            permanent = 400 <= status < 500 and status not in _RETRYABLE and message.attempts + 1 >= _REFUSED_ATTEMPTS
        if permanent or datetime.now(UTC) - message.created_at > _GIVE_UP:
            _LOG.warning("callback_given_up", extra={**fields, "error": reason})
            await self._service.outbox.done(message)
            return
        _LOG.log(level, "callback_postponed", extra={**fields, "error": reason})
        pause = min(_FIRST_RETRY * 2.0 ** min(message.attempts, 30), _LAST_RETRY) * random.uniform(0.75, 1.25)
        await self._service.outbox.postpone(message, datetime.now(UTC) + timedelta(seconds=pause))

    async def _post(self, message: OutgoingMessage) -> int:
        session_id = message.lane
        asked = (await self._service.sessions.metadata_of(session_id))[TASK]
        task = await self._tasks.view_of(session_id)
        body = json.dumps(_body(task, running=message.data["status"] == "running"), ensure_ascii=False).encode()
        token = (await self._service.sessions.secrets_of(session_id)).get(CALLBACK_TOKEN)
        headers = {"Content-Type": "application/json", "X-Runner-Delivery": f"{session_id}-{message.data['seq']}"}
        # A server of this user must not take the request for the user's own.
        headers["Via"] = "1.1 debug-server"
        if token is not None:
            headers |= signed(token, body)
        async with asyncio.timeout(_TIMEOUT):
            target = await self._tasks.targets.resolve(asked[CALLBACK])
            return await _send_to(self._http(), target, self._tasks.receivers, body, headers)

    def _http(self) -> httpx.AsyncClient:
        """The HTTP client, made for the first message: importing httpx takes a tenth of a second."""
        if self._client is None:
            import httpx

            # No connection is reused: it is known by its address, and may have proved another host name.
            alone = httpx.Limits(max_keepalive_connections=0)
            self._client = httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False, follow_redirects=False, limits=alone)
        return self._client


def signed(token: str, body: bytes) -> dict[str, str]:
    """Headers with the token and a signature of time and body."""
    moment = str(int(time.time()))
    digest = hmac.new(token.encode(), moment.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Runner-Token": token, "X-Runner-Timestamp": moment, "X-Runner-Signature": f"sha256={digest}"}


def _body(task: RunnerTask, *, running: bool) -> dict[str, Any]:
    found = {name: value for name, value in task.model_dump(mode="json").items() if name in _BODY}
    if running:
        unknown = ("finished_at", "exit_code", "worktree_cleanup_succeeded", "worktree_cleanup_message")
        found |= {"status": TaskStatus.RUNNING.value, "message": "running", "worktree_cleanup_attempted": False}
        found |= dict.fromkeys(unknown)
    return {"task_id": task.task_id, "run_id": task.run_id, **found}


async def _send_to(
    client: httpx.AsyncClient, target: Target, receivers: TrustedServerUser, body: bytes, headers: dict[str, str]
) -> int:
    """Send to the checked address: a second look-up of the name could give another one.

    AccessError when another user of this machine has the port; over HTTPS the certificate proves who is there.
    """
    import httpx

    default = {"http": 80, "https": 443}[target.scheme]
    name = f"[{target.host}]" if ":" in target.host else target.host
    address = f"[{target.address}]" if target.address.version == 6 else str(target.address)
    host = name if target.port == default else f"{name}:{target.port}"
    url = f"{target.scheme}://{address}:{target.port}{target.path}"
    request = client.build_request("POST", url, content=body, headers={**headers, "Host": host})
    request.extensions["sni_hostname"] = target.host
    if target.scheme == "http":
        await HttpTrust(receivers, connection_error=httpx.ConnectError).async_hook(request)
    response = await client.send(request, stream=True)  # only the status matters
    await response.aclose()
    return response.status_code
