"""What the parts of the service share: the parts below, and the one bridge from async to threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import ParamSpec, TypeVar

from debug_server.engine import LocalEngine, Sessions
from debug_server.errors import NotFoundError, UnavailableError
from debug_server.model import Command, Session
from debug_server.runner.settings import RunnerPaths
from debug_server.service.audience import Audience
from debug_server.service.caller import Caller
from debug_server.service.disk_room import require_room
from debug_server.service.own_user import OwnUser
from debug_server.service.quotas import Quotas
from debug_server.service.threads import Threads, or_exhausted
from debug_server.service.turns import Turns
from debug_server.service.uses import Uses
from debug_server.service.wakeups import Wakeups
from debug_server.store import MetadataStore
from debug_server.worktrees.foreign import Trust

_THREADS = 32
_GIT_THREADS = 32  # of their own: a fetch may take minutes, and who waits for a workspace waits for somebody's close

_PEER_THREADS = 2
_OWNERS = 10_000  # sessions whose owner is remembered

P = ParamSpec("P")
T = TypeVar("T")


class ServicePart:
    """Base of the parts that ``Service`` is composed of."""

    def __init__(
        self, *, store: MetadataStore, engine: LocalEngine, sessions: Sessions, paths: RunnerPaths, shell: str
    ) -> None:
        self._store = store
        self._engine = engine
        self._sessions = sessions
        self._paths = paths
        self._shell = shell  # for commands given as one text
        self._threads = Threads(_THREADS, "service")
        self._git_threads = Threads(_GIT_THREADS, "service-git")
        self._peer_threads = Threads(_PEER_THREADS, "service-peers")
        self._wakeups = Wakeups(store, read=partial(self._read, store.events.read), last=self._last_event)
        self._quotas = Quotas(store, self._read)
        self._owners: dict[int, int | None] = {}
        self._token_uses = Uses("token", store.tokens.note_uses)
        self._session_uses = Uses("session", store.sessions.touch)
        self._turns = Turns()
        self.audience = Audience(revoked=self._revoked)
        self.own_user = OwnUser(self._call_peers)
        self.draining = False

    @property
    def trust(self) -> Trust:
        """Whose repositories on this machine may be used."""
        return self._sessions.trust

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something that may block for a moment where it cannot make the server deaf."""
        call = partial(or_exhausted, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _call_git(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for what works on repositories and waits for workspaces."""
        call = partial(or_exhausted, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._git_threads, call)

    async def _call_peers(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for looking at callers, also while all others wait for the store."""
        call = partial(or_exhausted, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._peer_threads, call)

    async def _read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read a few rows; here and now where that is quicker than waking a thread (20 us against 100)."""
        if self._store.reads_at_once:
            return function(*args, **kwargs)
        return await self._call(function, *args, **kwargs)

    async def _revoked(self, token_ids: Collection[int]) -> list[int]:
        rows = [await self._read(self._store.tokens.get, number) for number in token_ids]
        return [row.id for row in rows if row.revoked_at is not None]

    async def _last_event(self) -> int:
        return await self._read(self._store.events.last)

    def drain(self) -> None:
        """Take no more work, and let those go who wait for some; call it in the loop."""
        self.draining = True
        self._wakeups.wake_all()

    def close(self) -> None:
        """Let go of threads and listeners; calls that are under way end by themselves."""
        self._wakeups.close()
        for uses in (self._token_uses, self._session_uses):
            uses.close()
        for threads in (self._threads, self._git_threads, self._peer_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    def _accepting(self) -> None:
        """UnavailableError while new work is refused; what ends work or only reads is never refused."""
        if self.draining:
            raise UnavailableError("the server is shutting down: try again in a moment", retry_after=2.0)
        require_room(self._paths.artifacts_root)

    async def _may_see(self, caller: Caller, session_id: int) -> bool:
        """Whether a session is the caller's to see."""
        if caller.is_admin:
            return True
        return caller.token_id is not None and await self._owner_of(session_id) == caller.token_id

    async def _owner_of(self, session_id: int) -> int | None:
        """The token that opened a session; that never changes, so it is read once."""
        if session_id not in self._owners:
            if len(self._owners) >= _OWNERS:
                self._owners.clear()
            self._owners[session_id] = (await self._read(self._store.sessions.get, session_id)).owner_token_id
        return self._owners[session_id]

    async def _session(self, caller: Caller, session_id: int) -> Session:
        """A session that the caller may see; another's looks as if it did not exist."""
        session = await self._read(self._store.sessions.get, session_id)
        if not caller.may_see(session):
            raise NotFoundError(f"there is no session {session_id}")
        return session

    async def _command(self, caller: Caller, command_id: int) -> Command:
        """A command of a session that the caller may see."""
        command = await self._read(self._store.commands.get, command_id)
        if not await self._may_see(caller, command.session_id):
            raise NotFoundError(f"there is no command {command_id}")
        return command

    async def _session_to_use(self, caller: Caller, session_id: int) -> Session:
        """The same for a caller that works in the session; its owner's work keeps a session from idling."""
        session = await self._session(caller, session_id)
        if session.owner_token_id == caller.token_id:
            self._session_uses.note(session_id)
        return session

    async def _command_to_use(self, caller: Caller, command_id: int) -> Command:
        """A command of a session that the caller may see, and works in."""
        command = await self._command(caller, command_id)
        if await self._owner_of(command.session_id) == caller.token_id:
            self._session_uses.note(command.session_id)
        return command
