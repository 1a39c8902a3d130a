"""The service: one attribute per resource, authentication, and the call of the method of each operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

from debug_server import messages as m
from debug_server.config.runner import DEFAULT_SHELL
from debug_server.disk.ownership import is_alive
from debug_server.engine import LocalEngine, Sessions
from debug_server.errors import AccessError
from debug_server.messages import Operation, ServiceOperation
from debug_server.runner.settings import RunnerPaths
from debug_server.service import audit
from debug_server.service.artifacts import ArtifactVerbs
from debug_server.service.branch_trees import BranchTreeVerbs
from debug_server.service.caller import Caller
from debug_server.service.commands import CommandVerbs
from debug_server.service.events import EventVerbs
from debug_server.service.execs import ExecVerbs
from debug_server.service.health import HealthVerbs
from debug_server.service.idempotency import KeyedReplies, RequestAttempt
from debug_server.service.identified_peers import IdentifiedPeers
from debug_server.service.last_used import LastUsed
from debug_server.service.leases import LeaseVerbs
from debug_server.service.logs import LogVerbs
from debug_server.service.outbox import OutboxVerbs
from debug_server.service.own_user import OwnUser
from debug_server.service.queue import QueueVerbs
from debug_server.service.recent_tokens import RecentTokens
from debug_server.service.repositories import RepositoryVerbs
from debug_server.service.runs import RunVerbs
from debug_server.service.session_logs import SessionLogVerbs
from debug_server.service.sessions import SessionVerbs
from debug_server.service.subject_runs import SubjectRunVerbs
from debug_server.service.tokens import TokenVerbs
from debug_server.service.verbs import Shared
from debug_server.service.workers import WorkerVerbs
from debug_server.store import MetadataStore
from debug_server.workers.workers import Workers

_STORES_KEY = frozenset(
    {"open_session", "submit_command", "start_run", "rerun_command"}
)  # the session or command that they add stores the key too, so that a retry finds it

_BAD_TOKEN = (
    "the token is unknown, has expired or was revoked: an admin makes one with `debug-server token create`; "
    "`debug-server configure --token -` saves it"
)
_NO_TOKEN = "no token was given: send `Authorization: Bearer TOKEN`, or run `debug-server configure --token -`"


class Service:
    """Every verb, for authenticated callers: ``service.sessions.open``, ``service.logs.follow``."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        engine: LocalEngine,
        sessions: Sessions,
        paths: RunnerPaths,
        shell: str = DEFAULT_SHELL,
        workers: Workers | None = None,
        workspaces_per_token: int | None = None,
    ) -> None:
        shared = Shared(
            store=store,
            engine=engine,
            sessions=sessions,
            paths=paths,
            shell=shell,
            workspaces_per_token=workspaces_per_token,
        )
        self._shared = shared
        self._store = store
        self._token_last_used = LastUsed("token", store.tokens.record_uses)
        self._keyed = KeyedReplies(
            store, call=shared.blocking.call, owner=lambda: engine.owner, is_alive=partial(is_alive, paths.owners_dir)
        )
        self.followers = shared.followers
        self.own_user = OwnUser(shared.blocking.call_peers)
        self.recent_tokens = RecentTokens()
        self.identified_peers = IdentifiedPeers()  # of gRPC: known by a token, or as the server's own user
        self.grpc_address: tuple[str, int] | None = None  # host and port of the gRPC server, once it listens

        self.repositories = RepositoryVerbs(shared)
        self.commands = CommandVerbs(shared)
        self.sessions = SessionVerbs(shared, self.commands)
        self.runs = RunVerbs(shared, self.sessions, self.commands)
        self.logs = LogVerbs(shared, self.commands)
        self.execs = ExecVerbs(
            shared,
            sessions=self.sessions,
            commands=self.commands,
            runs=self.runs,
            logs=self.logs,
            keyed=self._keyed,
        )
        self.session_logs = SessionLogVerbs(shared, self.logs)
        self.artifacts = ArtifactVerbs(shared)
        self.events = EventVerbs(shared)
        self.tokens = TokenVerbs(shared)
        self.leases = LeaseVerbs(shared)
        self.workers = WorkerVerbs(workers)
        self.health = HealthVerbs(shared)
        self.subject_runs = SubjectRunVerbs(shared)
        self.branch_trees = BranchTreeVerbs(shared)
        self.outbox = OutboxVerbs(shared)
        self.queue = QueueVerbs(shared)

    @property
    def draining(self) -> bool:
        """Whether the server refuses new work."""
        return self._shared.draining

    def drain(self) -> None:
        """Refuse new work and end pending waits; call it in the event loop."""
        self._shared.draining = True
        self._shared.wakeups.wake_all()

    def close(self) -> None:
        """Release threads and listeners; running calls finish in the background."""
        self._shared.close()
        self._token_last_used.close()

    async def authenticate(self, secret: str | None) -> Caller:
        """The holder of a token; AccessError for an unknown, expired or revoked one."""
        if not secret:
            raise AccessError(_NO_TOKEN)
        token = await self._shared.blocking.read(self._store.tokens.find, secret)
        if token is None:
            self.recent_tokens.discard(secret)
            raise AccessError(_BAD_TOKEN)
        self.recent_tokens.add(secret)
        caller = Caller.of(token)
        audit.note_caller(caller)
        if self._store.tokens.should_record_use(token):
            self._token_last_used.record(token.id)
        self._shared.quotas.take_request(caller)
        return caller

    def verb(self, operation: ServiceOperation) -> Callable[..., Any]:
        """The method of an operation."""
        noun, _, name = operation.verb.partition(".")
        found: Callable[..., Any] = getattr(getattr(self, noun), name)
        return found

    async def perform(
        self, caller: Caller, operation: ServiceOperation, request: m.Request, key: str | None = None
    ) -> m.Reply:
        """Perform an operation with a single reply: check the caller's scopes and, with a key, perform it only once."""
        caller.require(operation.scopes or ())
        if isinstance(request, m.ExecCommand):  # its reply has the output, which stays in the log: it keeps ids alone
            return await self.execs.run(caller, request, idempotency_key=key)
        if key is None:
            reply: m.Reply = await self.verb(operation)(caller, request)
            return reply
        return await self._keyed.once(
            caller, operation, request, key, partial(self._attempt, caller, operation, request)
        )

    async def once(
        self,
        caller: Caller,
        operation: Operation,
        request: m.Request,
        key: str | None,
        run: Callable[[str | None], Awaitable[m.Reply]],
    ) -> m.Reply:
        """As ``perform``, for an operation of another part; ``run`` receives the key prefixed with the caller."""
        caller.require(operation.scopes or ())
        if key is None:
            return await run(None)
        return await self._keyed.once(caller, operation, request, key, lambda attempt: run(attempt.key))

    async def _attempt(
        self, caller: Caller, operation: ServiceOperation, request: m.Request, attempt: RequestAttempt
    ) -> m.Reply:
        if attempt.since is not None and (found := await self._resume(caller, request, attempt.key, attempt.since)):
            return found
        options = {"idempotency_key": attempt.key} if operation.name in _STORES_KEY else {}
        reply: m.Reply = await self.verb(operation)(caller, request, **options)
        return reply

    async def _resume(self, caller: Caller, request: m.Request, key: str, since: datetime) -> m.Reply | None:
        """Resume the request of a process that died; None if it had created nothing."""
        if isinstance(request, m.OpenSession):
            return await self.sessions.resume(caller, request, key, since)
        if isinstance(request, m.StartRun):
            return await self.runs.resume(caller, request, key, since)
        if isinstance(request, m.RerunCommand):
            return await self.runs.resume_rerun(caller, request, key, since)
        return None
