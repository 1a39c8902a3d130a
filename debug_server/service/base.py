"""What the parts of the service share: the parts below, and the one bridge from async to threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from debug_server.engine import LocalEngine, Sessions
from debug_server.errors import NotFoundError, UnavailableError
from debug_server.events import EventFeed
from debug_server.model import Command, Session
from debug_server.runner.settings import RunnerPaths
from debug_server.service.caller import Caller
from debug_server.store import MetadataStore

P = ParamSpec("P")
T = TypeVar("T")


class ServicePart:
    """Base of the parts that ``Service`` is composed of."""

    def __init__(
        self, *, store: MetadataStore, engine: LocalEngine, sessions: Sessions, paths: RunnerPaths, feed: EventFeed
    ) -> None:
        self._store = store
        self._engine = engine
        self._sessions = sessions
        self._paths = paths
        self._feed = feed
        self.draining = False

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something that may block where it cannot make the server deaf."""
        return await asyncio.to_thread(function, *args, **kwargs)

    def _accepting(self) -> None:
        if self.draining:
            raise UnavailableError("the server is shutting down: try again in a moment", retry_after=2.0)

    async def _session(self, caller: Caller, session_id: int) -> Session:
        """A session that the caller may see; another's looks as if it did not exist."""
        session = await self._call(self._store.get_session, session_id)
        if not caller.may_see(session):
            raise NotFoundError(f"there is no session {session_id}")
        return session

    async def _command(self, caller: Caller, command_id: int) -> Command:
        """A command of a session that the caller may see."""
        command = await self._call(self._store.get_command, command_id)
        try:
            await self._session(caller, command.session_id)
        except NotFoundError as error:
            raise NotFoundError(f"there is no command {command_id}") from error
        return command
