"""The service in this process, for a machine without a server.

The first operation on commands starts the queue of this process: it adopts running commands and starts waiting ones.
``close`` stops the queue; running commands continue under their keepers.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from debug_server import messages as m
from debug_server.client import calls
from debug_server.client.calls import Call
from debug_server.client.decoding import decode
from debug_server.client.downloaded_file import writing
from debug_server.errors import UnavailableError
from debug_server.messages import OPERATIONS, CommandReply, EventReply, LogPiece
from debug_server.messages.faults import validated
from debug_server.service import LOCAL
from debug_server.surfaces.cli.driving import drive
from debug_server.surfaces.cli.parts import OpenLocal

T = TypeVar("T")
_WITHOUT_ENGINE = ("repositor", "token", "who_am_i", "health", "event", "worker", "lease")
_PAGE_BYTES = 1 << 20
_ADOPT_WAIT_SECONDS = 0.3
_START_SECONDS = 2.0
_TICK_SECONDS = 0.05
_CANCEL_SECONDS = 60.0


class LocalBackend:
    """Calls the service as this machine's own user, who may do everything."""

    is_here = True

    def __init__(self, open_local: OpenLocal) -> None:
        self._stack = ExitStack()
        self._local = self._stack.enter_context(open_local())
        self._runner = self._stack.enter_context(asyncio.Runner())
        self._queue_started = False
        self.place = f"this machine, without a server; data folder {self._local.data_folder}"

    def send(self, call: Call[T]) -> T:
        """Perform one operation."""
        self._start_queue_for(call.operation)
        if call.operation == "session_patch":
            patch = self._local.service.sessions.diff_bytes(LOCAL, _request(m.SessionRef, call.fields))
            return decode(call.reply, self._runner.run(patch))
        try:
            return decode(call.reply, self._runner.run(self._performed(call)))
        except KeyboardInterrupt:
            self._runner.run(self._local.service.execs.wait_for_abandoned(LOCAL, _CANCEL_SECONDS))
            raise

    def send_from_thread(self, call: Call[T]) -> T:
        """Perform one operation in the event loop of the thread that follows a log."""
        pending = asyncio.run_coroutine_threadsafe(self._performed(call), self._runner.get_loop())
        try:
            return decode(call.reply, pending.result())
        except CancelledError as error:  # by ``close``
            raise UnavailableError("the program ends") from error

    def _performed(self, call: Call[Any]) -> Coroutine[Any, Any, Any]:
        operation = OPERATIONS[call.operation]
        return self._local.service.perform(LOCAL, operation, _request(operation.request, call.fields))

    def follow_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset until the command has ended."""
        self._start_queue_for("follow_log")
        request = _request(m.FollowLog, {"command_id": command_id, "offset": offset})
        yield from drive(self._runner, self._local.service.logs.follow(LOCAL, request))

    def stored_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset to its current end."""
        self._start_queue_for("read_log")
        while True:
            request = _request(m.ReadLog, {"command_id": command_id, "offset": offset, "limit": _PAGE_BYTES})
            page = self._runner.run(self._local.service.logs.read(LOCAL, request))
            yield from page.pieces
            if not page.pieces:
                return
            offset = page.next_offset

    def follow_events(
        self, *, after: int, session_id: int | None, command_id: int | None, kind: str | None
    ) -> Iterator[EventReply]:
        """Events after a cursor, then new ones."""
        fields = {"after": after, "session_id": session_id, "command_id": command_id, "kind": kind}
        request = _request(m.ReadEvents, fields)
        yield from drive(self._runner, self._local.service.events.follow(LOCAL, request))

    def download(self, session_id: int, artifact_id: int, target: Path, *, replace: bool) -> None:
        """Write an artifact's bytes to a file; without ``replace``, the file must not exist."""
        request = _request(m.ArtifactRef, {"session_id": session_id, "artifact_id": artifact_id})
        source = self._runner.run(self._local.service.artifacts.path(LOCAL, request))
        with source.open("rb") as kept, writing(target, replace=replace) as file:
            shutil.copyfileobj(kept, file)

    def ensure_started(self, command: CommandReply) -> CommandReply:
        """Wait until the command has started, for at most two seconds; returns its current state."""
        waited = 0.0
        while command.status == "pending" and waited < _START_SECONDS:
            command = self.send(calls.wait_command(command.id, seconds=_TICK_SECONDS))
            waited += _TICK_SECONDS
        return command

    def close(self) -> None:
        """Close the backend; running commands continue."""
        if self._queue_started:
            self._local.service.queue.stop()
        self._stack.close()

    def _start_queue_for(self, operation: str) -> None:
        if self._queue_started or any(part in operation for part in _WITHOUT_ENGINE):
            return
        self._queue_started = True
        self._local.service.queue.start(adopt_wait_seconds=_ADOPT_WAIT_SECONDS)

    def __enter__(self) -> LocalBackend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


R = TypeVar("R", bound=m.Request)


def _request(cls: type[R], fields: Any) -> R:
    return validated(cls, dict(fields), whole="request")
