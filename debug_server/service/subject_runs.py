"""Runs with a subject, the name by which they are found: one command in a session of its own.

Host tasks are such runs. A run is done when its session is closed: then its tree is empty and its directories removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from debug_server.config.cron import Rule
from debug_server.engine.schedules import ScheduledAction
from debug_server.errors import NotFoundError
from debug_server.messages import ADMIN
from debug_server.model import Command, DueTime, NewEvent, QueuedRun, Session
from debug_server.service.adding import BEGIN_SECONDS, Adding
from debug_server.service.caller import Caller
from debug_server.service.verbs import Verbs
from debug_server.service.wakeups import wait_for

_CANCEL_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """The rows of a run."""

    session: Session
    command: Command

    @property
    def is_closed(self) -> bool:
        """Whether the session is closed and the run done."""
        return not self.session.is_open


class SubjectRunVerbs(Verbs):
    """Used by other parts of the server, not by surfaces."""

    async def add(
        self, caller: Caller, steps: Sequence[QueuedRun | NewEvent], due: DueTime | None = None
    ) -> list[Command | NewEvent] | None:
        """Queue runs, each in a session of its own, and add events, all in one commit.

        ``due`` is claimed in the same commit; None if another process has claimed it and nothing was added.
        """
        caller.require((ADMIN,))
        self._shared.require_accepting()
        return await self._call(self._engine.queue_atomically, steps, due)

    async def queue(self, caller: Caller, plan: Callable[[], QueuedRun]) -> RunRows:
        """Queue a run of the caller; ConflictError if a resource that it claims is in use.

        ``plan`` returns the run; the thread that adds it calls it, and also runs the command if that can start at once:
        each change of threads would cost more than adding the run.
        """
        self._shared.require_accepting()

        def add(told: Callable[[Command], None]) -> Command:
            run = replace(plan(), requested_by=caller.name, owner_token_id=caller.token_id)
            return self._engine.queue_run(run, told=told)

        async with self._quotas.reserve(caller, sessions=1, commands=1):
            adding = Adding(add, self._wakeups, until_ended=False)
            self._engine.run_in_thread(adding.run)
            command = await adding.wait(time.monotonic() + BEGIN_SECONDS)
        session = await self._read(self._store.sessions.get, command.session_id)
        return RunRows(session=session, command=command)

    async def find(self, caller: Caller, subject: str) -> RunRows:
        """The newest run with this subject that the caller may see, or NotFoundError."""
        owner = None if caller.is_admin else caller.token_id
        command = await self._read(self._store.commands.newest_by_subject, subject, owner_token_id=owner)
        session = await self._read(self._store.sessions.get, command.session_id)
        if not caller.may_see(session):
            raise NotFoundError(f"there is no run with the subject {subject!r}")
        return RunRows(session=session, command=command)

    async def of_session(self, session_id: int) -> RunRows:
        """The run of a session."""
        session = await self._read(self._store.sessions.get, session_id)
        return RunRows(session=session, command=(await self._read(self._store.commands.in_session, session_id))[0])

    async def page(self, caller: Caller, prefix: str, *, after: int, limit: int, newest: bool = False) -> list[RunRows]:
        """Runs whose subject begins with ``prefix``: the caller's, or all for an admin."""
        owner = None if caller.is_admin else caller.token_id
        return await self._call(
            partial(self._rows, prefix, owner_token_id=owner, after=after, limit=limit, newest=newest)
        )

    def _rows(self, prefix: str, **asked: Any) -> list[RunRows]:
        rows = self._store.commands.by_subject_prefix(prefix, **asked)
        return [RunRows(session=self._store.sessions.get(row.session_id), command=row) for row in rows]

    async def wait(self, run: RunRows, seconds: float) -> RunRows:
        """Wait until the run is done, ``seconds`` are over or the server drains; returns its current rows."""
        if run.is_closed and run.command.status.terminal:
            return run
        deadline = time.monotonic() + seconds
        async with self._wakeups.changes_of(("session", run.session.id)) as woken:
            while True:
                woken.clear()
                # The session first: the command of a closed session has ended, so its row, read later, is terminal.
                session = await self._read(self._store.sessions.get, run.session.id)
                command = await self._read(self._store.commands.get, run.command.id)
                run = RunRows(session=session, command=command)
                left = deadline - time.monotonic()
                if run.is_closed or left <= 0 or self._shared.draining:
                    return run
                await wait_for(woken, left)

    async def cancel(self, run: RunRows, message: str) -> RunRows:
        """Cancel a run; returns when it is done, or after a minute."""
        if run.is_closed:
            return run
        await self._call(self._engine.cancel, run.command.id, message)
        return await self.wait(run, _CANCEL_SECONDS)

    def declare_schedules(
        self, caller: Caller, group: str, rules: Mapping[str, Rule], act: Callable[[DueTime], None]
    ) -> None:
        """Replace the schedules whose names begin with ``group``; ``act`` is called when one is due.

        ``act`` runs in the scheduler's thread and passes the due time to ``add``, which claims it.
        """
        caller.require((ADMIN,))
        self._engine.schedules.declare(
            group, {name: ScheduledAction(rule=rule, act=act) for name, rule in rules.items()}
        )
