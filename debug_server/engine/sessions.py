"""Sessions: a repository, a commit and a patch become a leased workspace in which commands run.

    open (lease, patch, row) -> commands … -> diff | reset | fork -> close (release)

The session's row has the generation of its lease, so any process can continue the session. A session whose lease was
taken over gets LeaseLostError instead of another session's files.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from debug_server import worktrees  # its exports are loaded on first use
from debug_server.config import WorkspacesConfig
from debug_server.disk import ownership
from debug_server.engine.artifacts import ArtifactCopier
from debug_server.engine.run_or_log import run_or_log
from debug_server.engine.session_directories import SessionDirectories
from debug_server.engine.workspace import SessionWorkspace, session_workspace
from debug_server.errors import ConflictError, InvalidInputError, LeaseLostError, StoreUnavailableError
from debug_server.model import (
    Cleanup,
    Command,
    CommandSpec,
    CommandStatus,
    EnvironmentPlan,
    Repository,
    Session,
    SessionPlan,
    SessionStatus,
)
from debug_server.ports import Lease
from debug_server.runner.environments.request import EnvironmentRequest
from debug_server.runner.planning import Job
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.store import MetadataStore
from debug_server.worktrees.locks import folder_lock
from debug_server.worktrees.process_leases import ProcessLeases
from debug_server.worktrees.removed_files import remove_renamed, rename_files
from debug_server.worktrees.repository_trust import Trust

if TYPE_CHECKING:
    from debug_server.worktrees import SessionPatch, WorktreeLease, WorktreePool
    from debug_server.worktrees.pool import OnWait

_LOG = logging.getLogger(__name__)
NO_MANIFEST = ("none",)  # in the place of manifests: nothing but the interpreter
_MAX_FORKS = 64
_REMOVAL_SECONDS = 10.0  # for others to rename the files of removed repositories
_PAGE = 200
SESSION_END = {
    CommandStatus.SUCCEEDED: SessionStatus.COMPLETED,
    CommandStatus.FAILED: SessionStatus.FAILED,
    CommandStatus.CANCELLED: SessionStatus.CANCELLED,
}


class Sessions:
    """Opens and closes sessions on this machine; safe to share between threads."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        paths: RunnerPaths,
        settings: WorkspacesConfig | None = None,
        process: Callable[[], str] | None = None,
    ) -> None:
        """``process`` returns the owner name of this process; without it, leases end only when they expire."""
        self._store = store
        self._paths = paths
        self.settings = settings or WorkspacesConfig()
        self._lock = threading.Lock()
        self._pools: dict[int, WorktreePool] = {}
        self._process_leases = (
            None
            if process is None
            else ProcessLeases(owners_dir=paths.owners_dir, process=process, open_sessions=self.open_sessions)
        )
        self._directories = SessionDirectories(store=store, paths=paths, trust=self.trust)
        self.artifacts = ArtifactCopier(store=store, paths=paths)
        self._closing: dict[int, threading.Lock] = {}

    @property
    def trust(self) -> Trust:
        """The users whose local repositories may be used."""
        return Trust(listed=self.settings.trusted_repositories)

    @property
    def views_dir(self) -> Path:
        """The folder of views (see the glossary) of local repositories that have no mirror yet."""
        return self._paths.artifacts_root / "repos" / ".views"

    @classmethod
    def of(cls, store: MetadataStore, settings: RunnerSettings, *, process: Callable[[], str] | None = None) -> Self:
        """From settings."""
        return cls(store=store, paths=settings.paths, settings=settings.workspaces, process=process)

    def register(self, remote: str, *, name: str | None = None) -> Repository:
        """The repository of a URL or a local path, registered if it is new."""
        checked = worktrees.check_remote_url(remote)
        url = str(Path(checked).resolve()) if checked.startswith("/") else checked
        with self._lock:
            try:
                return self._find_or_create(url, name)
            except ConflictError:  # another process registered this remote, or its name, first
                return self._find_or_create(url, name)

    def _find_or_create(self, url: str, name: str | None) -> Repository:
        known = self._store.repositories.page()
        for row in known:
            if row.remote_url == url and name in (None, row.name):
                return row
        # Use the same rows for the name: rows read later could have this remote from another process.
        return self._store.repositories.create(name or _free_name(url, {row.name for row in known}), url)

    def register_reachable(self, remote: str) -> Repository:
        """Register a URL or a local path and clone its mirror; undone if the remote cannot be reached."""
        repository = self.register(remote)
        try:
            self.pool(repository).ensure_bare_repo()
        except BaseException:  # also an interrupt: a clone may take minutes
            with self._lock:
                if self._store.repositories.discard(repository.id):
                    self._pools.pop(repository.id, None)
            raise
        return repository

    def remove_repository(self, repository: Repository) -> None:
        """Remove a repository that is not in use, with its mirror and workspaces; ConflictError if it is in use.

        If this process is killed in between, ``remove_leftovers`` removes the files.
        """
        self.pool(repository).recover()  # the leases of dead processes end
        self._store.repositories.remove(repository.id)
        with self._lock:
            self._pools.pop(repository.id, None)
        self.remove_leftovers()

    def remove_leftovers(self) -> None:
        """Remove the files of removed repositories."""
        repos, worktrees = (self._paths.artifacts_root / name for name in ("repos", "worktrees"))
        if self._store.repositories.with_files():
            repos.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._rename_leftovers(repos)
        for folder in (repos, worktrees):
            remove_renamed(folder)

    def _rename_leftovers(self, repos: Path) -> None:
        with folder_lock(repos, timeout=_REMOVAL_SECONDS) as lock:  # else another process does it
            # Read behind the lock: a name that another process has freed may belong to a new repository.
            for row in () if lock is None else self._store.repositories.with_files():
                bare_path, worktree_root = self._places(row.name)
                rename_files(bare_path=bare_path, worktree_root=worktree_root)
                self._store.repositories.free_name(row.id, row.name)

    def _places(self, name: str) -> tuple[Path, Path]:
        """The mirror and the folder of the workspaces of a repository."""
        root = self._paths.artifacts_root
        return root / "repos" / f"{name}.bare", root / "worktrees" / name

    def pool(self, repository: Repository) -> WorktreePool:
        """The workspaces of one repository."""
        with self._lock:
            found = self._pools.get(repository.id)
            if found is None:
                bare_path, worktree_root = self._places(repository.name)
                found = worktrees.build_pool_from_repository(
                    self._store,
                    repository,
                    bare_path=bare_path,
                    worktree_root=worktree_root,
                    defaults=self.settings,
                    holders=self._process_leases,
                )
                self._pools[repository.id] = found
            return found

    def open(
        self,
        repository: Repository,
        *,
        commit: str,
        owner: str,
        patch: SessionPatch | None = None,
        requested_by: str | None = None,
        owner_token_id: int | None = None,
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
        plan: SessionPlan | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_wait: OnWait | None = None,
        apply: bool = True,
    ) -> Session:
        """Lease a workspace of the commit, apply the patch, and add the session's row: all of it or nothing.

        Without ``apply`` the session's command applies the patch. ``on_wait`` is called with what it waits for.
        """
        lease = self.pool(repository).acquire_worktree(
            commit_sha=commit, owner=owner, environment_hash=None, timeout=timeout, on_wait=on_wait
        )
        try:
            if patch is not None and apply:
                worktrees.apply_patch(lease.path, patch, patches_dir=self._paths.patches_dir)
            return self._store.sessions.create(
                repository_id=repository.id,
                commit_sha=lease.commit_sha,
                worktree_id=lease.worktree.id,
                lease_generation=lease.generation,
                patch_hash=patch.sha256 if patch is not None else None,
                requested_by=requested_by,
                owner_token_id=owner_token_id,
                expires_at=expires_at,
                idempotency_key=idempotency_key,
                plan=plan,
                metadata=metadata,
            )
        except BaseException:
            lease.release()
            raise

    def open_again(
        self, earlier: Session, *, owner: str, owner_token_id: int | None, idempotency_key: str | None, process: str
    ) -> Session:
        """Open a session with the directory, or with the commit, patch and environment, of an earlier one.

        If the earlier one had an empty folder, the new one has one, too.
        """
        plan = earlier.plan
        if plan.directory is not None or plan.scratch:
            if plan.directory is not None and not Path(plan.directory).is_dir():
                raise InvalidInputError(f"the directory {plan.directory} of session {earlier.id} no longer exists")
            return self._store.sessions.create(
                requested_by=owner,
                owner_token_id=owner_token_id,
                idempotency_key=idempotency_key,
                plan=SessionPlan(
                    directory=plan.directory, scratch=plan.scratch, environment=plan.environment, process=process
                ),
                metadata=earlier.metadata,
            )
        if earlier.repository_id is None or earlier.commit_sha is None or plan.branch_tree is not None:
            raise InvalidInputError(f"session {earlier.id} has no workspace of a commit that can be opened again")
        return self.open(
            self._store.repositories.get(earlier.repository_id),
            commit=earlier.commit_sha,
            owner=owner,
            patch=self._patch_of(earlier),
            requested_by=owner,
            owner_token_id=owner_token_id,
            idempotency_key=idempotency_key,
            plan=SessionPlan(environment=plan.environment, process=process),
            metadata=earlier.metadata,
        )

    def lease(self, session: Session) -> WorktreeLease:
        """A session's own lease; LeaseLostError if it has ended."""
        if session.repository_id is None or session.worktree_id is None:
            raise InvalidInputError(f"session {session.id} has no leased workspace")
        row = self._store.worktrees.get(session.worktree_id)
        if row.lease_token is None or row.generation != session.lease_generation:
            raise LeaseLostError(f"the lease of session {session.id} on {row.path} has ended: open a new session")
        return worktrees.WorktreeLease(
            worktree=row,
            lease_token=row.lease_token,
            path=Path(row.path),
            commit_sha=session.commit_sha or "",
            environment_hash=row.environment_hash,
            needs_dependency_sync=False,
            pool=self._pools.get(session.repository_id)
            or self.pool(self._store.repositories.get(session.repository_id)),
            generation=row.generation,
        )

    def prepare(self, session: Session) -> WorktreeLease | SessionWorkspace:
        """The workspace of a session's commands; creates the session's own directory, if its plan has one."""
        self._directories.prepare(session)
        return self.workspace(session)

    def workspace(self, session: Session) -> WorktreeLease | SessionWorkspace:
        """The workspace of a session's commands: its own directory, its lease, or the directory that its plan names."""
        if (own := self._directories.path(session)) is not None:
            return SessionWorkspace(path=own)
        if session.worktree_id is not None:
            return self.lease(session)
        commit = session.plan.commit or _unleased_commit(session)
        if commit is not None and session.is_open:
            return self._lease_on_first_command(session, commit)
        return session_workspace(self._store.worktrees, session)

    def _lease_on_first_command(self, session: Session, commit: str) -> WorktreeLease:
        """Lease the workspace of a session that was opened without one; called when its first command starts."""
        repository = self._store.repositories.get(session.repository_id or 0)
        lease = self.pool(repository).acquire_worktree(
            commit_sha=commit, owner=session.requested_by or f"session {session.id}", environment_hash=None
        )
        try:
            if (patch := self._patch_of(session)) is not None:
                worktrees.apply_patch(lease.path, patch, patches_dir=self._paths.patches_dir)
            self._store.sessions.set_lease(
                session.id, worktree_id=lease.worktree.id, generation=lease.generation, commit_sha=lease.commit_sha
            )
        except BaseException:
            lease.release()
            raise
        return lease

    def environment(self, session: Session, workspace: Path) -> EnvironmentRequest | None:
        """The environment that was requested when the session was opened."""
        return self.requested(session.plan.environment, workspace, name=f"session-{session.id}")

    @staticmethod
    def requested(wanted: EnvironmentPlan | None, workspace: Path, *, name: str) -> EnvironmentRequest | None:
        """The request of an environment plan in a workspace."""
        if wanted is None:
            return None
        return EnvironmentRequest(
            name,
            [] if wanted.manifests == NO_MANIFEST else [workspace / name for name in wanted.manifests],
            {"python": wanted.python} if wanted.python else None,
            project_root=workspace,
            groups=wanted.groups,
            extras=wanted.extras,
            detect=not wanted.manifests,
        )

    def plan_job(self, command: Command, lease: Lease | None = None, *, spec: CommandSpec | None = None) -> Job:
        """The job of a claimed command, from its row and its session; ``lease`` replaces the session's workspace."""
        session = self._store.sessions.get(command.session_id)
        spec = spec or CommandSpec.from_command(command, *self._store.commands.inputs(command.id))
        lease = lease or self.prepare(session)
        return Job(command=command, spec=spec, lease=lease, env_request=self.environment(session, Path(lease.path)))

    def follow_up(self, command: Command) -> None:
        """Copy an ended command's artifacts and close its session, if its plan says so; may be repeated.

        A command that has not ended is skipped: another owner runs it, or its end is not recorded yet.
        """
        if not command.plan.may_have_follow_up or not (row := self._store.commands.get(command.id)).status.terminal:
            return
        if command.plan.closes_session and not command.plan.artifacts:
            self._close_if_open(command.session_id, SESSION_END[row.status])
            return
        session = self._store.sessions.get(command.session_id)
        if session.is_open:
            self._copy_artifacts(session, command)
            if command.plan.closes_session or self.is_abandoned(session):
                self.close(session, status=SESSION_END[row.status])

    def _copy_artifacts(self, session: Session, command: Command) -> None:
        """Copy the requested artifacts, unless the workspace is lost; StoreUnavailableError if it must be retried."""
        if command.plan.artifacts:
            run_or_log(
                "artifacts_lost",
                lambda: self.artifacts.copy_requested(session, command, self.workspace(session).path),
                reraise=StoreUnavailableError,
                command_id=command.id,
            )

    def follow_up_unstarted(self, command: Command) -> None:
        """Close the session of a command that never ran, if its plan says so; such a command has no artifacts."""
        if command.plan.closes_session:
            session = self._store.sessions.get(command.session_id)
            self.close(session, status=SESSION_END[self._store.commands.get(command.id).status])

    def open_sessions(self) -> list[Session]:
        """The sessions that are pending or running."""
        found = []
        for status in (SessionStatus.PENDING, SessionStatus.RUNNING):
            after = 0
            while page := self._store.sessions.page(status=status, after=after, limit=_PAGE):
                after = page[-1].id
                found += page
        return found

    def is_abandoned(self, session: Session) -> bool:
        """Whether the process for which the session was opened is dead; unknown for a process of another folder."""
        owners, name = self._paths.owners_dir, session.plan.process
        return name is not None and ownership.is_ours(owners, name) and not ownership.is_alive(owners, name)

    def close_abandoned(self) -> list[int]:
        """Close the sessions of dead processes whose commands have ended; returns their ids."""
        found = self.open_sessions()
        return [
            row.id
            for row in found
            if run_or_log("close_abandoned_failed", partial(self.close_if_abandoned, row), session_id=row.id)
        ]

    def close_if_abandoned(self, session: Session) -> bool:
        """Close the session if its process is dead and its commands have ended; its artifacts are copied first."""
        if not self.is_abandoned(session):
            return False
        if self._store.commands.unfinished(session.id):
            return False
        newest = self._store.commands.newest_in_session(session.id)
        if newest is not None and not newest.status.terminal:  # it was added meanwhile
            return False
        self._copy_missing_artifacts(session)
        self.close(session, status=SessionStatus.FAILED if newest is None else SESSION_END[newest.status])
        return True

    def copy_missing_artifacts(self) -> None:
        """Copy the artifacts of commands that ended just before their server died, in open sessions."""
        for session in self.open_sessions():
            run_or_log("artifact_copy_failed", partial(self._copy_missing_artifacts, session), session_id=session.id)

    def _copy_missing_artifacts(self, session: Session) -> None:
        """Copy the artifacts of the last command only: it may have changed the files of earlier commands."""
        newest = self._store.commands.newest_in_session(session.id)
        if newest is not None and newest.status.terminal and newest.started_at is not None:
            self._copy_artifacts(session, newest)

    def retry_removals(self) -> None:
        """Retry the removal of scratch folders of closed sessions."""
        self._directories.retry_removals()

    def diff(self, session: Session) -> bytes:
        """The changes by the session's patch and commands, as a patch that applies to its commit."""
        return self.lease(session).diff()

    def reset(self, session: Session) -> None:
        """Reset the workspace to the commit and the patch."""
        self.lease(session).reset(self._patch_of(session))

    def _patch_of(self, session: Session) -> SessionPatch | None:
        if session.patch_hash is None:
            return None
        return worktrees.load_patch(session.patch_hash, self._paths.patches_dir)

    def fork(self, session: Session, count: int, *, owner: str) -> list[Session]:
        """Open new sessions whose workspaces are copies of this one's."""
        if not 1 <= count <= _MAX_FORKS:
            raise InvalidInputError(f"a session can be forked 1 to {_MAX_FORKS} times at once, not {count}")
        leases = self.lease(session).fork(count, owner=owner)
        made: list[Session] = []
        try:
            for lease in leases:
                made.append(self._fork_row(session, lease))
        except BaseException:
            for lease in leases[len(made) :]:
                lease.release()
            raise
        return made

    def _fork_row(self, session: Session, lease: WorktreeLease) -> Session:
        return self._store.sessions.create(
            repository_id=session.repository_id,
            commit_sha=lease.commit_sha,
            worktree_id=lease.worktree.id,
            lease_generation=lease.generation,
            patch_hash=session.patch_hash,
            requested_by=session.requested_by,
            owner_token_id=session.owner_token_id,
            expires_at=session.expires_at,
            plan=replace(session.plan, process=None, forked_from=session.id),
            metadata=session.metadata,
        )

    def close(self, session: Session, *, status: SessionStatus = SessionStatus.COMPLETED) -> Session:
        """Release the workspace and close the session; a closed one is returned unchanged.

        The engine, a cancel and the housekeeper may call this at the same time: one closes, the others wait.
        """
        return self._close_if_open(session.id, status)

    def _close_if_open(self, session_id: int, status: SessionStatus) -> Session:
        with self._lock:
            lock = self._closing.setdefault(session_id, threading.Lock())
        try:
            with lock:
                current = self._store.sessions.get(session_id)
                return self._close(current, status) if current.is_open else current
        finally:
            with self._lock:
                self._closing.pop(session_id, None)

    def _close(self, session: Session, status: SessionStatus) -> Session:
        """Close the session; a lost lease, or a session that another process has closed, is not an error."""
        cleanup = None
        if session.worktree_id is not None:
            try:
                lease = self.lease(session)
                lease.release()
                cleanup = None if lease.left is None else Cleanup(succeeded=False, message=lease.left)
            except LeaseLostError as error:
                _LOG.info("lease_lost", extra={"session_id": session.id, "error": str(error)})
        cleanup = self._directories.run_cleanup_and_remove(session) or cleanup
        try:
            return self._store.sessions.set_status(session.id, status, cleanup=cleanup)
        except ConflictError:
            if (current := self._store.sessions.get(session.id)).is_open:
                raise
            return current


def _unleased_commit(session: Session) -> str | None:
    """The commit of a session that a program added to the store with a repository, but without a lease."""
    if session.repository_id is None or session.plan.directory is not None or session.plan.branch_tree is not None:
        return None
    return session.commit_sha


def _free_name(url: str, taken: set[str]) -> str:
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", url.rstrip("/").rpartition("/")[2].removesuffix(".git")).strip("-._")
    base = base[:100] or "repository"
    return base if base not in taken else f"{base}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
