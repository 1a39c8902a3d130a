"""Which sessions and commands a caller may see; those of others are reported as not found."""

from __future__ import annotations

from debug_server.errors import NotFoundError
from debug_server.model import Command, Session
from debug_server.service.blocking_calls import BlockingCalls
from debug_server.service.caller import Caller
from debug_server.service.last_used import LastUsed
from debug_server.store import MetadataStore

_MAX_CACHED_OWNERS = 10_000  # entries of the cache of session owners


class Access:
    """Finds rows for callers, and records when sessions are used."""

    def __init__(self, store: MetadataStore, blocking: BlockingCalls) -> None:
        self._store = store
        self._blocking = blocking
        self._owners: dict[int, int | None] = {}
        self._last_used = LastUsed("session", store.sessions.touch)

    async def may_see(self, caller: Caller, session_id: int) -> bool:
        """Whether the caller may see a session."""
        if caller.is_admin:
            return True
        return caller.token_id is not None and await self._owner_of(session_id) == caller.token_id

    async def _owner_of(self, session_id: int) -> int | None:
        """The token that opened a session; cached, because it never changes."""
        if session_id not in self._owners:
            if len(self._owners) >= _MAX_CACHED_OWNERS:
                self._owners.clear()
            self._owners[session_id] = (await self._blocking.read(self._store.sessions.get, session_id)).owner_token_id
        return self._owners[session_id]

    async def session(self, caller: Caller, session_id: int) -> Session:
        """A session that the caller may see, or NotFoundError."""
        session = await self._blocking.read(self._store.sessions.get, session_id)
        if not caller.may_see(session):
            raise NotFoundError(f"there is no session {session_id}", what="session")
        return session

    async def command(self, caller: Caller, command_id: int) -> Command:
        """A command of a session that the caller may see, or NotFoundError."""
        command = await self._blocking.read(self._store.commands.get, command_id)
        if not await self.may_see(caller, command.session_id):
            raise NotFoundError(f"there is no command {command_id}", what="command")
        return command

    async def use_session(self, caller: Caller, session_id: int) -> Session:
        """A session that the caller may see; if the caller owns it, its time of last use is updated."""
        session = await self.session(caller, session_id)
        if session.owner_token_id == caller.token_id:
            self._last_used.record(session_id)
        return session

    async def use_command(self, caller: Caller, command_id: int) -> Command:
        """A command that the caller may see; if the caller owns its session, the time of last use is updated."""
        command = await self.command(caller, command_id)
        if await self._owner_of(command.session_id) == caller.token_id:
            self._last_used.record(command.session_id)
        return command

    def close(self) -> None:
        """Finish writing the times of last use."""
        self._last_used.close()
