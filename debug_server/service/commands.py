"""The verbs of commands."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from debug_server import messages as m
from debug_server.errors import ConflictError, DebugServerError, InvalidInputError, KeeperError
from debug_server.model import (
    Command,
    CommandSearch,
    CommandSpec,
    CommandStatus,
    Limits,
    RequestKey,
    Session,
    SessionStatus,
)
from debug_server.runner.settings import shell_command
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.stdin import write_to
from debug_server.service.verbs import Verbs
from debug_server.service.wakeups import wait_for
from debug_server.worktrees.artifact_files import check_patterns

_STATUSES = {status.value: (status,) for status in CommandStatus} | {
    "active": (CommandStatus.PENDING, CommandStatus.RUNNING),
    "ended": (CommandStatus.SUCCEEDED, CommandStatus.FAILED, CommandStatus.CANCELLED),
}
_CANCEL_SECONDS = 10.0
_START_SECONDS = 10.0  # for a claimed command to start
_KEY_SEPARATOR = "\n"  # separates the request's key and the line number; keys of callers cannot contain it
_CHECK_SECONDS = 1.0  # between checks whether this process still runs a command, which no commit tells
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.001, 0.1


class CommandVerbs(Verbs):
    """Commands."""

    async def submit_lines(self, session_id: int, request: m.OpenSession, key: str | None) -> None:
        """Queue shell command lines, each with its own key; if one cannot be queued, the session is closed."""
        try:
            for number, line in enumerate(request.commands):
                argv = shell_command(self._shared.shell, line)
                command = m.CommandRequest(argv=list(argv), env=request.env, cwd=request.cwd)
                line_key = None if key is None else f"{key}{_KEY_SEPARATOR}{number}"
                await self._call(self.add, session_id, command, line_key)
        except DebugServerError:
            session = await self._call(self._store.sessions.get, session_id)
            await self._call(self._engine.close_session, session, SessionStatus.FAILED)
            raise

    async def submit(
        self, caller: Caller, request: m.SubmitCommand, *, idempotency_key: str | None = None
    ) -> m.CommandReply:
        """Queue a command; the same key in the same session gives the same command."""
        self._shared.require_accepting()
        session = await self._access.use_session(caller, request.session_id)
        require_open(session)
        async with self._quotas.reserve(caller, commands=1):
            row = await self._call(self.add, session.id, request, idempotency_key)
        return await self._shown(row)

    def add(
        self,
        session_id: int,
        request: m.CommandRequest,
        key: str | None,
        *,
        closes_session: bool = False,
        request_key: RequestKey | None = None,
        told: Callable[[Command], None] | None = None,
    ) -> Command:
        """Check a command and queue it; with ``told`` it is run in this thread, see ``LocalEngine.submit``."""
        check_patterns(request.artifacts)
        if request.cwd is not None:
            self._check_cwd(session_id, request.cwd)
        return self._engine.submit(
            session_id=session_id,
            spec=spec_of(request),
            priority=request.priority,
            idempotency_key=key,
            closes_session=closes_session,
            artifacts=request.artifacts,
            request=request_key,
            told=told,
        )

    def _check_cwd(self, session_id: int, cwd: str) -> None:
        """InvalidInputError for a path outside the workspace; symbolic links are checked when the command starts."""
        check_relative_cwd(cwd)
        if not cwd.startswith("/") or (session := self._store.sessions.get(session_id)).worktree_id is None:
            return
        root, path = Path(self._store.worktrees.get(session.worktree_id).path), Path(os.path.normpath(cwd))
        if not any(path.is_relative_to(name) for name in (root, root.resolve())):
            raise _outside(cwd)

    async def get(self, caller: Caller, request: m.CommandRef) -> m.CommandReply:
        """One command."""
        return await self._shown(await self._access.command(caller, request.command_id))

    async def find(self, caller: Caller, request: m.FindCommands) -> m.FoundCommandList:
        """Commands of all sessions that the caller may see."""
        if request.session_id is not None:
            await self._access.session(caller, request.session_id)
        search = CommandSearch(
            statuses=tuple(dict.fromkeys(status for word in request.status for status in _STATUSES[word])),
            repository_id=await self._repository_id(caller, request.repository),
            session_id=request.session_id,
            owner_token_id=None if caller.is_admin else caller.token_id,
            after=request.after,
            newest=request.newest,
            limit=request.limit + 1,
        )
        rows, following = views.one_page(
            await self._call(self._store.commands.find, search), request.limit, lambda row: row.command.id
        )
        items = [views.found_command(row, await self._waits_for(row.command)) for row in rows]
        return m.FoundCommandList(items=items, next_after=following)

    async def _shown(self, row: Command) -> m.CommandReply:
        return views.command(row, await self._waits_for(row))

    async def _waits_for(self, row: Command) -> list[int]:
        """The commands that must end before this one can start; empty if it has started or ended."""
        if row.owner is not None or row.status.terminal:
            return []
        return await self._read(self._store.commands.awaited_by, row.id)

    async def page(self, caller: Caller, request: m.SessionListRequest) -> m.CommandList:
        """A session's commands by sequence."""
        session = await self._access.session(caller, request.session_id)
        rows = await self._call(
            self._store.commands.in_session,
            session.id,
            after=request.after,
            limit=request.limit + 1,
            newest=request.newest,
        )
        rows, following = views.one_page(rows, request.limit, lambda row: row.sequence)
        return m.CommandList(items=[await self._shown(row) for row in rows], next_after=following)

    async def wait(self, caller: Caller, request: m.WaitCommand) -> m.CommandReply:
        """Wait until the command has ended or the timeout is over."""
        command = await self._access.use_command(caller, request.command_id)
        async with self._shared.followers.while_valid(caller):
            return await self._shown(await self.wait_until_ended(command, request.timeout))

    async def wait_until_ended(self, command: Command, seconds: float) -> Command:
        """Wait until the command has ended, ``seconds`` are over or the server drains; returns the current row.

        Artifacts are copied after the end: the wait includes that.
        """
        deadline = time.monotonic() + seconds
        command = await self.wait_until_terminal(command, deadline)
        if command.status.terminal and command.plan.may_have_follow_up:
            await self._wait_for_follow_up(command, deadline)
        return command

    async def _wait_for_follow_up(self, command: Command, deadline: float) -> None:
        """Wait for the follow-up without a thread: copying may take long, and many callers may wait."""
        pause = _MIN_POLL_SECONDS
        while (
            self._engine.is_active(command.id)
            and (left := deadline - time.monotonic()) > 0
            and not self._shared.draining
        ):
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, _MAX_POLL_SECONDS)

    async def wait_until_terminal(self, command: Command, deadline: float) -> Command:
        """Wait until the command is terminal, the deadline has passed or the server drains."""
        if command.status.terminal:
            return command
        if (ended := self._wakeups.ended(command.id)) is not None:
            return ended
        async with self._wakeups.changes_of(("command", command.id)) as woken:
            while True:
                woken.clear()
                left = deadline - time.monotonic()
                over = left <= 0 or self._shared.draining
                command = await (self._read(self._store.commands.get, command.id) if over else self._current(command))
                if command.status.terminal or over:
                    return command
                await wait_for(woken, min(left, _CHECK_SECONDS))

    async def _current(self, command: Command) -> Command:
        """The command's row. While this process runs it, ``command`` itself: its end is told, not read."""
        if (ended := self._wakeups.ended(command.id)) is not None:
            return ended
        if self._engine.runs(command.id):
            return command
        return await self._read(self._store.commands.get, command.id)

    async def cancel(self, caller: Caller, request: m.CommandRef) -> m.CommandReply:
        """Cancel a command; returns when its tree is empty, or after ten seconds."""
        command = await self._access.use_command(caller, request.command_id)
        if not command.status.terminal:
            await self._call(self._engine.cancel, command.id, f"cancelled by {caller.name}")
            command = await self.wait_until_ended(command, _CANCEL_SECONDS)
        return views.command(command)

    async def signal(self, caller: Caller, request: m.SignalCommand) -> m.Message:
        """Send a signal to its leader."""
        command = await self._access.use_command(caller, request.command_id)
        async with self._conflict_if_ended(command):
            await self._wait_until_started(command, time.monotonic() + _START_SECONDS)
            await self._call(self._engine.signal, command.id, request.signal)
        return m.Message(message=f"signal {request.signal} was sent to command {command.id}")

    async def write_stdin(self, caller: Caller, request: m.WriteStdin) -> m.Message:
        """Write to its stdin; returns when the command's pipe has accepted the data."""
        command = await self._access.use_command(caller, request.command_id)
        data = _data(request)
        async with self._conflict_if_ended(command):
            command = await self._wait_until_started(command, time.monotonic() + _START_SECONDS)
            connection = await self._call(self._engine.connect, command)
            with connection:
                await write_to(connection, request.write_id, data, close=request.close)
        return m.Message(message=f"write {request.write_id} reached command {command.id}")

    async def _wait_until_started(self, command: Command, deadline: float) -> Command:
        """Wait, without a thread, until a claimed command runs; any other command is returned at once."""
        async with self._wakeups.changes_of(("command", command.id)) as woken:
            while command.status is CommandStatus.PENDING and command.owner is not None:
                if (left := deadline - time.monotonic()) <= 0:
                    break
                woken.clear()
                command = await self._read(self._store.commands.get, command.id)
                if command.status is CommandStatus.PENDING:
                    await wait_for(woken, left)
        return command

    @asynccontextmanager
    async def _conflict_if_ended(self, command: Command) -> AsyncIterator[None]:
        """Raise ConflictError instead of KeeperError if the command has ended, before or during the block."""
        try:
            yield
        except KeeperError as error:
            command = await self._read(self._store.commands.get, command.id)
            if not command.status.terminal:
                raise
            raise ConflictError(f"command {command.id} has already ended ({command.status.value})") from error

    async def row(self, caller: Caller, command_id: int) -> Command:
        """The row of a command, with its metadata."""
        return await self._access.command(caller, command_id)


def check_relative_cwd(cwd: str) -> None:
    """InvalidInputError for a relative path that leads out of the workspace."""
    if os.path.normpath(cwd).split("/")[0] == "..":
        raise _outside(cwd)


def check_cwd_of_new_folder(cwd: str) -> None:
    """InvalidInputError for a path that leads out of a folder that does not exist yet."""
    check_relative_cwd(cwd)
    if cwd.startswith("/"):
        raise _outside(cwd)


def _outside(cwd: str) -> InvalidInputError:
    return InvalidInputError(f"cwd {cwd!r} is outside the workspace: use a path inside it", field="cwd")


def require_open(session: Session) -> None:
    """ConflictError if the session is closed."""
    if not session.is_open:
        raise ConflictError(f"session {session.id} has ended ({session.status.value}): open a new one")


def spec_of(request: m.CommandRequest) -> CommandSpec:
    """The command of a request."""
    return CommandSpec(
        request.argv,
        request.env,
        Path(request.cwd) if request.cwd is not None else None,
        request.log_name,
        limits=Limits.from_json(request.requested_limits),
        require=request.require,
        isolation=request.isolation,
        network=request.network,
        secrets=request.secrets,
        tty=request.tty,
        stdin=request.stdin,
    )


def _data(request: m.WriteStdin) -> bytes:
    if request.encoding == "utf-8":
        return request.data.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(request.data, validate=True)
    except ValueError as error:  # also for characters that are not ASCII
        raise InvalidInputError(f"data of write {request.write_id!r} is not base64: {error}") from error
