"""Runs commands in the foreground: at once, in the calling thread.

This engine has no thread of its own. It claims only commands of one session, and takes over only commands of dead
processes; it does not touch the rest of the queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from debug_server import worktrees  # its exports are loaded on first use
from debug_server.engine.keeper_calls import KeeperCalls
from debug_server.engine.run_or_log import run_or_log
from debug_server.engine.sessions import SESSION_END, Sessions
from debug_server.engine.workspace import SessionWorkspace
from debug_server.errors import DebugServerError, InvalidInputError
from debug_server.model import (
    Command,
    CommandSpec,
    CommandStatus,
    EnvironmentPlan,
    Repository,
    Session,
    SessionStatus,
)
from debug_server.ports import Lease
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.log_listener import ChunkCallback, observe_log
from debug_server.runner.recovery import Adopted, recover
from debug_server.runner.spec import CommandResult
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore

if TYPE_CHECKING:
    from debug_server.runner.environments.preview import EnvironmentPreview
    from debug_server.worktrees import SessionPatch

NO_DEADLINE = 365 * 86400.0  # seconds: the command and the reader of its output have no deadline


class ForegroundEngine:
    """Runs one command after another."""

    def __init__(self, *, store: MetadataStore, supervisor: WorkerSupervisor, sessions: Sessions) -> None:
        self._store = store
        self._supervisor = supervisor
        self._sessions = sessions
        self._keepers = KeeperCalls(store=store, keepers_dir=supervisor.paths.keepers_dir)

    @property
    def owner(self) -> str:
        """The name of this process as the owner of commands."""
        return self._supervisor.owner

    def check(self, spec: CommandSpec, directory: Path | None) -> None:
        """Check a request before anything is created for it; without a directory it will run in a new workspace."""
        if directory is None:
            self._supervisor.check_enforceable(spec, None)
        else:
            self._supervisor.check_request(spec, SessionWorkspace(path=directory))

    def recover(self) -> None:
        """Recover ended commands of dead processes: exit records, artifacts, workspaces. Skips running commands."""
        for item in recover(self._store, self._supervisor.paths, self.owner, ended_only=True):
            run_or_log("recovery_failed", partial(self._follow, item), command_id=item.command.id)
            run_or_log("follow_up_failed", partial(self._sessions.follow_up, item.command), command_id=item.command.id)
        self._sessions.close_abandoned()

    def run(
        self,
        session: Session,
        spec: CommandSpec,
        lease: Lease,
        *,
        patch: SessionPatch | None = None,
        artifacts: Sequence[str] = (),
        observers: Sequence[ChunkCallback] = (),
        terminal_size: Mapping[str, int] | None = None,
    ) -> CommandResult:
        """Run a command until it ends; its row is terminal before this returns or raises."""
        return self._supervisor.run_inline(
            session.id,
            spec,
            lease,
            env_request=self._sessions.environment(session, Path(lease.path)),
            patch=patch,
            artifacts=artifacts,
            observers=observers,
            observer_seconds=NO_DEADLINE,
            terminal_size=terminal_size,
        )

    def preview(
        self,
        repository: Repository,
        *,
        commit: str,
        patch: SessionPatch | None,
        wanted: EnvironmentPlan | None,
    ) -> tuple[str, EnvironmentPreview]:
        """The commit's id and the environment of a command there; nothing is built or run."""
        from debug_server.runner.environments.preview import EnvironmentPreview

        pool = self._sessions.pool(repository)
        with pool.acquire_worktree(commit_sha=commit, owner="plan", environment_hash=None) as lease:
            if patch is not None:
                worktrees.apply_patch(lease.path, patch, patches_dir=self._supervisor.paths.patches_dir)
            request, environments = (
                self._sessions.requested(wanted, lease.path, name="plan"),
                self._supervisor.environments,
            )
            if request is None or environments is None:
                return lease.commit_sha, EnvironmentPreview()
            return lease.commit_sha, environments.preview(request)

    def close(self, session: Session) -> None:
        """Close a session if all its commands have ended; otherwise the next process closes it."""
        if self._store.commands.unfinished(session.id):
            return
        newest = self._store.commands.newest_in_session(session.id)
        if newest is None or newest.status.terminal:  # else it was added meanwhile
            ended = SessionStatus.CANCELLED if newest is None else SESSION_END[newest.status]
            self._sessions.close(session, status=ended)

    def cancel_all(self, message: str) -> None:
        """Cancel the running command; call it from another thread, because the engine's thread waits."""
        self._supervisor.pipeline.cancel_all(message)

    def connect(self, session: Session) -> KeeperConnection | None:
        """Connect to the keeper of the session's running command; None if there is none."""
        for command in self._store.commands.unfinished(session.id):
            if command.status is CommandStatus.RUNNING:
                return self._keepers.connect(command)
        return None

    def follow_adopted(self, session: Session, observers: Sequence[ChunkCallback]) -> Iterator[Command]:
        """Follow the session's commands that outlived their process; yield each when it has ended."""
        left = [row.id for row in self._store.queue.claimed() if row.session_id == session.id]
        for item in recover(self._store, self._supervisor.paths, self.owner, session_id=session.id):
            left.remove(item.command.id)
            observed = observe_log(item.log_path, observers)
            self._follow(item)
            observed.finish(NO_DEADLINE)
            self._sessions.follow_up(item.command)
            yield self._store.commands.get(item.command.id)
        for row in map(self._store.commands.get, left):
            if row.exit is not None:  # recovery recorded its end
                yield row

    def run_waiting(
        self, session: Session, *, add: CommandSpec | None, default_directory: Path, observers: Sequence[ChunkCallback]
    ) -> Iterator[tuple[Command, DebugServerError | None]]:
        """Claim and run the session's waiting commands in order; yield each ended command, with its error if it failed.

        ``add`` is queued after them. Commands of a session without a workspace run in ``default_directory``.
        """
        if add is None and not self._store.commands.in_session(session.id, status=CommandStatus.PENDING):
            return
        with self._workspace(session, default_directory) as lease:
            if add is not None:
                self._store.commands.add(session_id=session.id, **add.to_columns())
            while (command := self._store.queue.claim_next(self.owner, session_id=session.id)) is not None:
                error = self._run_claimed(command, lease, observers)
                yield self._store.commands.get(command.id), error

    def _run_claimed(
        self, command: Command, lease: Lease, observers: Sequence[ChunkCallback]
    ) -> DebugServerError | None:
        pipeline = self._supervisor.pipeline
        try:
            try:
                job = self._sessions.plan_job(command, lease)
            except DebugServerError as error:
                pipeline.refuse(command, error)
                raise
            pipeline.run(replace(job, observers=tuple(observers), observer_seconds=NO_DEADLINE))
        except DebugServerError as error:
            return error
        finally:
            self._sessions.follow_up(command)
        return None

    @contextlib.contextmanager
    def _workspace(self, session: Session, default_directory: Path) -> Iterator[Lease]:
        """The workspace of the commands; its lease is renewed until the block ends."""
        try:
            lease: Lease = self._sessions.prepare(session)
        except InvalidInputError:
            yield SessionWorkspace(path=default_directory)
            return
        session = self._store.sessions.get(session.id)  # it may have been leased just now
        with contextlib.nullcontext() if session.worktree_id is None else self._sessions.lease(session).kept_alive():
            yield lease

    def _follow(self, item: Adopted) -> None:
        self._supervisor.pipeline.wait_for_adopted(item.command, item.running, item.log_path)
