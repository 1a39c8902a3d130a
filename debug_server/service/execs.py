"""The verb exec: run a command, wait for its end and answer with its output, in one request.

begin (row, engine) -> wait -> answer          the same key again: no new command, but a wait and an answer
                         +--> lost connection: the command continues, or is cancelled if the request says so
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial

from debug_server import messages as m
from debug_server.errors import ConflictError, DebugServerError, NotFoundError
from debug_server.messages import OPERATIONS, Operation
from debug_server.messages.execs import DEFAULT_STREAM_WAIT, DEFAULT_WAIT, Begun, encoding_of
from debug_server.model import Command, QueuedRun, RequestKey, SessionPlan
from debug_server.runner.log_ends import Ends, LeftOutRange, LogEnds, Piece, read_ends
from debug_server.runner.log_format import STDERR, STDOUT, STREAM_NAMES
from debug_server.service import views
from debug_server.service.adding import BEGIN_SECONDS, Adding
from debug_server.service.caller import Caller
from debug_server.service.commands import CommandVerbs, check_cwd_of_new_folder, require_open, spec_of
from debug_server.service.idempotency import KeyedReplies, RequestAttempt
from debug_server.service.logs import READ_IN_EVENT_LOOP, LogVerbs
from debug_server.service.runs import RunVerbs
from debug_server.service.sessions import SessionVerbs
from debug_server.service.verbs import Shared, Verbs
from debug_server.worktrees.artifact_files import check_patterns

_BEGIN = Operation(
    name="exec_command",
    request=m.ExecCommand,
    reply=Begun,
    scopes=OPERATIONS["exec_command"].scopes,
    idempotent=False,
    summary=OPERATIONS["exec_command"].summary,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Addition:
    """How a command is added."""

    deadline: float  # for a thread that adds it
    key: str | None = None  # stored in its rows, for a repetition after a crash
    request: RequestKey | None = None  # answered by the same commit
    until_ended: bool = False  # wait for the end of a command that starts at once


class ExecVerbs(Verbs):
    """Commands that are run and waited for."""

    def __init__(
        self,
        shared: Shared,
        *,
        sessions: SessionVerbs,
        commands: CommandVerbs,
        runs: RunVerbs,
        logs: LogVerbs,
        keyed: KeyedReplies,
    ) -> None:
        super().__init__(shared)
        self._session_verbs = sessions
        self._commands = commands
        self._runs = runs
        self._logs = logs
        self._keyed = keyed
        self._waiting: Counter[tuple[int | None, str]] = Counter()  # requests that wait, by caller and key
        self._cancelling: set[asyncio.Task[Command | None]] = set()

    async def run(self, caller: Caller, request: m.ExecCommand, *, idempotency_key: str | None = None) -> m.ExecReply:
        """Run a command and answer when it has ended or the wait is over."""
        deadline = time.monotonic() + (request.wait or DEFAULT_WAIT)
        command = await self._begin_and_wait(caller, request, idempotency_key, deadline)
        return await self._answer(caller, command, request)

    async def _begin_and_wait(
        self, caller: Caller, request: m.ExecCommand, key: str | None, deadline: float
    ) -> Command:
        if request.on_disconnect == "cancel":
            begun = self._begin_in_task(caller, request, key, deadline)
            with self._cancelled_if_abandoned(caller, key, begun):
                return await self._wait(caller, key, await asyncio.shield(begun), deadline)
        if request.repository is None and not caller.quotas:  # which the command must not fill twice
            with nullcontext() if key is None else suppress(ConflictError):  # the key has become known: below
                if (command := await self._run_at_once(caller, request, key, deadline)) is not None:
                    return command
        return await self._wait(caller, key, await self._begin(caller, request, key, deadline), deadline)

    async def _run_at_once(
        self, caller: Caller, request: m.ExecCommand, key: str | None, deadline: float
    ) -> Command | None:
        """Add the command and wait for its end, with one commit and one wake-up each; None if the key is known."""
        new = None
        if key is not None:
            new = self._keyed.key_of(caller, _BEGIN, request.without_wait(), key, _begun_text)
            if await self._read(self._store.requests.is_known, new):
                return None
        with self._counted(caller, key):
            async with self._shared.followers.while_valid(caller):
                addition = _Addition(deadline=deadline, request=new, until_ended=True)
                command = await self._start(caller, request, addition)
                return await self._commands.wait_until_ended(command, deadline - time.monotonic())

    async def stream(
        self, caller: Caller, request: m.ExecCommand, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[Begun | m.LogPiece | m.ExecReply, None]:
        """The same as a stream: the ids, each piece of output as it is written, and the answer."""
        deadline = time.monotonic() + (request.wait or DEFAULT_STREAM_WAIT)
        began_by = min(deadline, time.monotonic() + BEGIN_SECONDS)  # the response starts when the command has begun
        begun = self._begin_in_task(caller, request, idempotency_key, began_by)
        may_cancel = request.on_disconnect == "cancel"
        with self._cancelled_if_abandoned(caller, idempotency_key, begun) if may_cancel else nullcontext():
            command = await asyncio.shield(begun)
            with self._counted(caller, idempotency_key):
                yield _begun(command)
                async with aclosing(self._logs.follow(caller, m.FollowLog(command_id=command.id))) as pieces:
                    with suppress(TimeoutError):
                        while (left := deadline - time.monotonic()) > 0:
                            piece = await asyncio.wait_for(anext(pieces, None), left)
                            if piece is None:
                                break
                            yield piece
                command = await self._wait(caller, idempotency_key, command, deadline)
        yield await self._answer(caller, command, request)

    async def _wait(self, caller: Caller, key: str | None, command: Command, deadline: float) -> Command:
        with self._counted(caller, key):
            async with self._shared.followers.while_valid(caller):
                return await self._commands.wait_until_ended(command, deadline - time.monotonic())

    # -- begin ----------------------------------------------------------------------------------------------------

    def _begin_in_task(
        self, caller: Caller, request: m.ExecCommand, key: str | None, deadline: float
    ) -> asyncio.Task[Command]:
        """A task of its own: a command that is being added must be known, even if the client is gone by then."""
        begun = asyncio.get_running_loop().create_task(self._begin(caller, request, key, deadline))
        begun.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody may be waiting for it
        return begun

    async def _begin(self, caller: Caller, request: m.ExecCommand, key: str | None, deadline: float) -> Command:
        """The command's row; with a key, that of the first request.

        What is kept of a request with a key are the ids: the answer is read from the log each time.
        """
        if key is None:
            return await self._start(caller, request, _Addition(deadline=deadline))
        attempt = partial(self._attempt, caller, request, deadline)
        begun = await self._keyed.once(caller, _BEGIN, request.without_wait(), key, attempt)
        assert isinstance(begun, Begun)
        return await self._read(self._store.commands.get, begun.command_id)

    async def _attempt(self, caller: Caller, request: m.ExecCommand, deadline: float, attempt: RequestAttempt) -> Begun:
        command = None
        if attempt.since is not None and request.session_id is None:
            command = await self._resume(caller, request, attempt)
        command = command or await self._start(caller, request, _Addition(deadline=deadline, key=attempt.key))
        return _begun(command)

    async def _resume(self, caller: Caller, request: m.ExecCommand, attempt: RequestAttempt) -> Command | None:
        """The command of a process that died; None if it had created nothing."""
        assert attempt.since is not None
        if request.repository is not None:
            run = await self._runs.resume(caller, request.as_run(), attempt.key, attempt.since)
            return None if run is None else await self._read(self._store.commands.get, run.command.id)
        session = await self._session_verbs.find_by_key(caller, attempt.key, attempt.since)
        return None if session is None else (await self._call(self._store.commands.in_session, session.id))[0]

    async def _start(self, caller: Caller, request: m.ExecCommand, addition: _Addition) -> Command:
        if request.repository is not None:
            run = await self._runs.start(caller, request.as_run(), idempotency_key=addition.key)
            return await self._read(self._store.commands.get, run.command.id)
        self._shared.require_accepting()
        if request.session_id is None:
            return await self._start_in_folder(caller, request, addition)
        session = await self._access.use_session(caller, request.session_id)
        require_open(session)
        async with self._quotas.reserve(caller, commands=1):
            add = partial(self._commands.add, session.id, request, addition.key, request_key=addition.request)
            return await self._add(add, addition)

    async def _start_in_folder(self, caller: Caller, request: m.ExecCommand, addition: _Addition) -> Command:
        """Run it in a session with an empty folder, which is removed at its end."""
        check_patterns(request.artifacts)
        if request.cwd is not None:
            check_cwd_of_new_folder(request.cwd)
        run = QueuedRun(
            spec=spec_of(request),
            session_plan=SessionPlan(scratch=True),
            priority=request.priority,
            requested_by=caller.name,
            owner_token_id=caller.token_id,
            artifacts=request.artifacts,
            session_metadata=request.metadata,
            idempotency_key=addition.key,
            request=addition.request,
        )
        async with self._quotas.reserve(caller, sessions=1, commands=1):
            return await self._add(partial(self._engine.queue_run, run), addition)

    async def _add(self, add: Callable[..., Command], addition: _Addition) -> Command:
        """Add a command in the thread that then runs it."""
        adding = Adding(lambda told: add(told=told), self._wakeups, until_ended=addition.until_ended)
        self._engine.run_in_thread(adding.run)
        return await adding.wait(addition.deadline)

    # -- a lost connection ----------------------------------------------------------------------------------------

    @contextmanager
    def _counted(self, caller: Caller, key: str | None) -> Iterator[None]:
        if key is None:
            yield
            return
        own = (caller.token_id, key)
        self._waiting[own] += 1
        try:
            yield
        finally:
            self._waiting[own] -= 1
            if not self._waiting[own]:
                del self._waiting[own]

    @contextmanager
    def _cancelled_if_abandoned(
        self, caller: Caller, key: str | None, begun: asyncio.Future[Command]
    ) -> Iterator[None]:
        """Cancel the command if the surface ends the block, because its client is gone.

        A server that shuts down ends the block, too: then the command continues.
        """
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            if not self._shared.draining:
                task = asyncio.get_running_loop().create_task(self._cancel(caller, key, begun))
                self._cancelling.add(task)  # the event loop itself holds no reference
                task.add_done_callback(self._cancelling.discard)
            raise

    async def _cancel(self, caller: Caller, key: str | None, begun: asyncio.Future[Command]) -> Command | None:
        """Cancel the command once it has begun, unless another request with its key waits for it: then None."""
        with suppress(DebugServerError):  # it has not begun, or the store is unavailable: its limits end it
            command = await begun
            if key is None or not self._waiting[caller.token_id, key]:
                await self._call(self._engine.cancel, command.id, f"the client of {caller.name} disconnected")
                return command
        return None

    async def wait_for_abandoned(self, caller: Caller, seconds: float) -> None:
        """Wait until those commands have ended that are being cancelled because their caller is gone."""
        deadline = time.monotonic() + seconds
        for command in await asyncio.gather(*self._cancelling):
            if command is not None:
                await self._wait(caller, None, command, deadline)

    # -- the answer -----------------------------------------------------------------------------------------------

    async def _answer(self, caller: Caller, command: Command, request: m.ExecCommand) -> m.ExecReply:
        size = views.log_bytes(command)
        if size == 0:
            reply = _reply(command, _removed(command, merged=request.merged), size, merged=request.merged)
        else:
            read = partial(_read_and_reply, command, request, size)
            reply = read() if size <= READ_IN_EVENT_LOOP else await self._call(read)
        if request.digest:
            with suppress(NotFoundError):  # the log was removed
                digest = await self._logs.digest(caller, m.DigestLog(command_id=command.id))
                reply = reply.model_copy(update={"digest": digest})
        return reply


def _begun(command: Command) -> Begun:
    return Begun(command_id=command.id, session_id=command.session_id)


def _begun_text(command: Command) -> str:
    return _begun(command).model_dump_json()


def _read_and_reply(command: Command, request: m.ExecCommand, size: int) -> m.ExecReply:
    try:
        written = _written(command) if command.exit else None
        ends = read_ends(command.log_path or "", request.output_bytes, merged=request.merged, written=written)
    except FileNotFoundError:
        ends = _removed(command, merged=request.merged)
    return _reply(command, ends, size, merged=request.merged)


def _written(command: Command) -> dict[int, int]:
    """How many bytes each stream has in all."""
    record = command.exit
    return {STDOUT: 0, STDERR: 0} if record is None else {STDOUT: record.stdout_bytes, STDERR: record.stderr_bytes}


def _removed(command: Command, *, merged: bool) -> LogEnds:
    """Of a log that was removed: the streams have their sizes, and all of it is left out."""
    sizes = _written(command)
    end = sum(sizes.values())

    def ends(size: int) -> Ends:
        left_out = LeftOutRange(size=size, start=0, end=end) if size else None
        return Ends(head=[], tail=[], size=size, left_out=left_out)

    return LogEnds(stdout=ends(sizes[STDOUT]), stderr=ends(sizes[STDERR]), merged=ends(end if merged else 0))


def _reply(command: Command, ends: LogEnds, log_bytes: int, *, merged: bool) -> m.ExecReply:
    record = command.exit
    started = command.started_at
    stdout, stdout_tail = _data(ends.stdout.head), _data(ends.stdout.tail)
    stderr, stderr_tail = _data(ends.stderr.head), _data(ends.stderr.tail)
    return m.ExecReply.model_construct(
        command_id=command.id,
        session_id=command.session_id,
        status=command.status.value,
        ended=command.status.terminal,
        exit_code=command.exit_code,
        exit_reason=None if command.exit_reason is None else command.exit_reason.value,
        message=(record.message or None) if record is not None else None,
        created_at=command.created_at,
        started_at=started,
        finished_at=command.finished_at,
        queued_seconds=None if started is None else max(0.0, (started - command.created_at).total_seconds()),
        wall_seconds=None if record is None else record.wall_seconds,
        cpu_seconds=None if record is None else record.cpu_seconds,
        stdout=stdout,
        stderr=stderr,
        stdout_tail=stdout_tail,
        stderr_tail=stderr_tail,
        stdout_encoding=encoding_of(stdout, stdout_tail),
        stderr_encoding=encoding_of(stderr, stderr_tail),
        stdout_bytes=ends.stdout.size,
        stderr_bytes=ends.stderr.size,
        log_bytes=log_bytes,
        merged=[_piece(item) for item in (*ends.merged.head, *ends.merged.tail)] if merged else None,
        left_out=[
            m.LeftOut(stream=name, bytes=part.size, start=part.start, end=part.end)
            for name in ("stdout", "stderr", "merged")
            if (part := getattr(ends, name).left_out) is not None
        ],
    )


def _data(pieces: list[Piece]) -> bytes:
    return pieces[0].data if len(pieces) == 1 else b"".join(piece.data for piece in pieces)


def _piece(piece: Piece) -> m.OutputPiece:
    return m.OutputPiece(
        offset=piece.offset, stream=STREAM_NAMES[piece.stream], data=piece.data, encoding=encoding_of(piece.data)
    )
