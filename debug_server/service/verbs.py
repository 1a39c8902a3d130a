"""The objects that the service's members share: store, engine, threads, access, quotas, followers."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from debug_server.engine import LocalEngine, Sessions
from debug_server.errors import NotFoundError, UnavailableError
from debug_server.messages import SESSIONS_READ
from debug_server.model import Repository
from debug_server.nearest import nearest
from debug_server.runner.settings import RunnerPaths
from debug_server.service.access import Access
from debug_server.service.blocking_calls import BlockingCalls
from debug_server.service.caller import Caller
from debug_server.service.fair_wakeups import FairWakeups
from debug_server.service.followers import Followers
from debug_server.service.free_space import require_free_space
from debug_server.service.quotas import Quotas
from debug_server.service.wakeups import Wakeups
from debug_server.store import MetadataStore

_COMPARED = 200  # newest repositories, with an unknown name


class Shared:
    """Created once for a service and passed to each of its members."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        engine: LocalEngine,
        sessions: Sessions,
        paths: RunnerPaths,
        shell: str,
        workspaces_per_token: int | None = None,
    ) -> None:
        self.store = store
        self.engine = engine
        self.sessions = sessions
        self.paths = paths
        self.shell = shell  # for commands that are given as one line
        self.blocking = BlockingCalls(
            reads_in_event_loop=store.reads_in_event_loop, on_exhausted=engine.drop_spare_processes
        )
        self.access = Access(store, self.blocking)
        read = self.blocking.read
        self.wakeups = Wakeups(store, read=partial(read, store.events.heads), last=partial(read, store.events.last))
        self.quotas = Quotas(store, read, workspaces=workspaces_per_token)
        self.fair_wakeups = FairWakeups()
        self.followers = Followers(revoked=self._revoked)
        self.draining = False

    async def _revoked(self, token_ids: Collection[int]) -> list[int]:
        rows = [await self.blocking.read(self.store.tokens.get, number) for number in token_ids]
        return [row.id for row in rows if row.revoked_at is not None]

    def require_accepting(self) -> None:
        """UnavailableError while the server drains, DiskFullError on a full disk; for verbs that add work."""
        if self.draining:
            raise UnavailableError("the server is shutting down: try again in a moment", retry_after=2.0)
        require_free_space(self.paths)

    def close(self) -> None:
        """Release threads and listeners."""
        self.wakeups.close()
        self.access.close()
        self.blocking.close()


class Verbs:
    """Base of the members of ``Service``: short names for what they share."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._store = shared.store
        self._engine = shared.engine
        self._sessions = shared.sessions
        self._access = shared.access
        self._quotas = shared.quotas
        self._wakeups = shared.wakeups
        self._call = shared.blocking.call
        self._call_git = shared.blocking.call_git
        self._read = shared.blocking.read

    async def _repository_id(self, caller: Caller, name: str | None) -> int | None:
        """The id of a repository by its name; NotFoundError if there is none."""
        return None if name is None else (await self._read(self._registered, caller, name)).id

    def _registered(self, caller: Caller, name: str) -> Repository:
        """The repository of that name; NotFoundError names the most similar one to a caller who may list them."""
        try:
            return self._store.repositories.by_name(name)
        except NotFoundError as error:
            known = (
                self._store.repositories.page(newest=True, limit=_COMPARED) if caller.holds((SESSIONS_READ,)) else []
            )
            meant = nearest(name, [row.name for row in known])
            if meant is None:
                raise
            raise NotFoundError(f"{error}: did you mean {meant!r}?", what=error.what) from error
