"""The verbs of foreground runs, which a command line calls in its own process.

They use plain values and blocking calls, so that a command line does not load the code of a server. Only the user of
the process can call them, so they check no permissions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from debug_server import worktrees  # its exports are loaded on first use
from debug_server.engine.foreground import NO_DEADLINE, ForegroundEngine
from debug_server.engine.sessions import Sessions
from debug_server.engine.workspace import SessionWorkspace
from debug_server.errors import (
    CommandExecutionError,
    EnvironmentBuildError,
    InvalidInputError,
    NotFoundError,
    PatchApplicationError,
    RemoteUnreachableError,
)
from debug_server.model import (
    Artifact,
    Command,
    CommandSpec,
    EnvironmentPlan,
    ExitRecord,
    Repository,
    Session,
    SessionPlan,
)
from debug_server.ports import Lease
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.log_listener import ChunkCallback
from debug_server.runner.settings import RunnerSettings, shell_command
from debug_server.runner.worker import session_number
from debug_server.store import MetadataStore
from debug_server.worktrees.artifact_files import RefusedFile, check_patterns

if TYPE_CHECKING:
    from debug_server.runner.environments.preview import EnvironmentPreview


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A command, its patch and its artifacts."""

    command: CommandSpec
    patch: bytes | None = None  # applied before it starts
    artifacts: Sequence[str] = ()  # patterns of files to keep


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReply:
    """What a run would use."""

    repository: str
    commit_sha: str
    environment: EnvironmentPreview


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReply:
    """How a command ended."""

    command_id: int | None  # None: it was interrupted before its row was added
    exit: ExitRecord | None = None  # None: its end is unknown
    log_path: Path | None = None
    error: str | None = None  # why it did not start, or that it was interrupted

    @classmethod
    def of(cls, row: Command, error: str | None = None) -> RunReply:
        """From a command's row."""
        return cls(
            command_id=row.id,
            exit=row.exit,
            log_path=Path(row.log_path) if row.log_path else None,
            error=error,
        )


def current_folder() -> Path:
    """The folder that commands run in; CommandExecutionError when it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise CommandExecutionError("the current folder no longer exists: change to another one") from error


class CommandInput:
    """The stdin and the terminal of a running command; KeeperError if it has ended."""

    def __init__(self, connection: KeeperConnection) -> None:
        self._connection = connection
        self._writes = 0

    def write(self, data: bytes) -> None:
        """Write data; returns when the command's pipe has accepted all of it."""
        self._writes += 1
        self._connection.write_stdin(str(self._writes), data, timeout=NO_DEADLINE)

    def close(self) -> None:
        """Close stdin."""
        self._connection.request({"op": "close_stdin"})

    def resize(self, size: Mapping[str, int]) -> None:
        """Set the size of the terminal: ``rows`` and ``cols``."""
        self._connection.send({"op": "resize", **size})


class ForegroundRun:
    """One command in a session of its own."""

    def __init__(
        self,
        *,
        engine: ForegroundEngine,
        sessions: Sessions,
        store: MetadataStore,
        session: Session,
        lease: Lease,
        request: RunRequest,
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._store = store
        self._lease = lease
        self._request = request
        self.session = session

    def run(self, *, observers: Sequence[ChunkCallback], terminal_size: Mapping[str, int] | None = None) -> RunReply:
        """Run the command until it ends; KeyboardInterrupt if the user interrupted it."""
        request = self._request
        try:
            result = self._engine.run(
                self.session,
                request.command,
                self._lease,
                patch=None if request.patch is None else worktrees.SessionPatch(request.patch),
                artifacts=request.artifacts,
                observers=observers,
                terminal_size=terminal_size,
            )
        except (CommandExecutionError, PatchApplicationError, EnvironmentBuildError) as error:
            return self._recorded_reply(str(error))
        return RunReply(command_id=result.command_id, exit=result.exit, log_path=result.log_path)

    def command_id(self) -> int:
        """The id of the command, once it has a row."""
        return self._store.commands.in_session(self.session.id)[-1].id

    def interrupted_reply(self) -> RunReply:
        """How the command ended when its caller was interrupted."""
        return self._recorded_reply("interrupted")

    def _recorded_reply(self, error: str) -> RunReply:
        rows = self._store.commands.in_session(self.session.id)
        return RunReply.of(rows[-1], error) if rows else RunReply(command_id=None, error=error)

    def keep_artifacts(self, command_id: int) -> tuple[list[Artifact], list[RefusedFile]]:
        """Copy the requested artifacts; returns the copied ones, and the refused ones with their reasons."""
        return self._sessions.artifacts.copy(
            self.session, Path(self._lease.path), self._request.artifacts, command_id=command_id
        )

    def cancel(self, message: str) -> None:
        """Cancel the command; ``run`` returns when its tree is empty."""
        self._engine.cancel_all(message)

    def connect(self) -> CommandInput | None:
        """The input of the running command; None before it runs."""
        connection = self._engine.connect(self.session)
        return None if connection is None else CommandInput(connection)


class ForegroundRuns:
    """The verbs of ``debug-server run`` and of ``python -m debug_server.runner.supervisor --session``."""

    def __init__(
        self, *, store: MetadataStore, engine: ForegroundEngine, sessions: Sessions, settings: RunnerSettings
    ) -> None:
        self._store = store
        self._engine = engine
        self._sessions = sessions
        self._settings = settings

    @contextmanager
    def in_directory(self, request: RunRequest, directory: Path) -> Iterator[ForegroundRun]:
        """A run in an existing directory; a refused request creates no session."""
        self._engine.check(request.command, directory)
        session = self._store.sessions.create(plan=SessionPlan(directory=str(directory)))
        try:
            yield self._run(session, SessionWorkspace(path=directory), request)
        finally:
            self._engine.close(session)

    def check(self, request: RunRequest) -> None:
        """Check a request for a workspace before its repository is fetched."""
        check_patterns(request.artifacts)
        self._engine.check(request.command, None)

    def recover(self) -> None:
        """Recover commands of dead processes that have ended: exit records, artifacts, workspaces."""
        self._engine.recover()

    def register_reachable(self, remote: str) -> Repository:
        """Register a URL or a path and clone its mirror; undone if the remote cannot be reached."""
        try:
            return self._sessions.register_reachable(remote)
        except RemoteUnreachableError as error:
            if worktrees.is_repository(remote):
                raise
            raise InvalidInputError(f"{error}: {self._advice(remote)}") from error

    def _advice(self, remote: str) -> str:
        """What to give instead of a remote that is no repository."""
        try:
            known = self._store.repositories.by_name(remote)
        except NotFoundError:
            return "--repo takes a git URL or the path of a repository"
        return f"write --repo {known.remote_url} for the registered repository {remote!r}"

    def plan(self, remote: str, *, commit: str, patch: bytes | None, environment: EnvironmentPlan | None) -> PlanReply:
        """The environment that a run of this commit and patch would have; nothing is built or run."""
        repository = self.register_reachable(remote)
        found, preview = self._engine.preview(
            repository,
            commit=commit,
            patch=None if patch is None else worktrees.SessionPatch(patch),
            wanted=environment,
        )
        return PlanReply(repository=repository.name, commit_sha=found, environment=preview)

    @contextmanager
    def in_workspace(
        self,
        request: RunRequest,
        repository: Repository,
        *,
        commit: str,
        owner: str,
        environment: EnvironmentPlan | None,
        on_wait: Callable[[str], None] | None = None,
    ) -> Iterator[ForegroundRun]:
        """A run in a new workspace of a commit; if this process is killed, recovery closes the session.

        It waits in a queue for as long as there is no workspace; ``on_wait`` is called with what it waits for.
        """
        plan = SessionPlan(environment=environment, process=self._engine.owner)
        patch = None if request.patch is None else worktrees.SessionPatch(request.patch)
        session = self._sessions.open(
            repository,
            commit=commit,
            owner=owner,
            plan=plan,
            patch=patch,
            apply=False,
            timeout=math.inf,
            on_wait=on_wait,
        )
        try:
            with self._sessions.lease(session).kept_alive() as lease:
                yield self._run(session, lease, request)
        finally:
            self._engine.close(session)

    def run_session_commands(
        self, session_id: str, *, add: str | None, observers: Sequence[ChunkCallback]
    ) -> Iterator[RunReply]:
        """Follow commands of the session that outlived their process, then run its waiting commands in order.

        ``add`` is a shell command line that is queued after them.
        """
        session = self._store.sessions.get(session_number(session_id))
        for row in self._engine.follow_adopted(session, observers):
            yield RunReply.of(row)
        spec = None
        if add is not None:
            spec = CommandSpec(shell_command(self._settings.default_shell, add), limits=self._settings.limits)
        waiting = self._engine.run_waiting(session, add=spec, default_directory=current_folder(), observers=observers)
        for row, error in waiting:
            yield RunReply.of(row, None if error is None else str(error))

    def _run(self, session: Session, lease: Lease, request: RunRequest) -> ForegroundRun:
        return ForegroundRun(
            engine=self._engine,
            sessions=self._sessions,
            store=self._store,
            session=session,
            lease=lease,
            request=request,
        )
