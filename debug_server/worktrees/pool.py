"""A repository's workspaces: who may have which one, and what is done before and after."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from debug_server.disk import make_private
from debug_server.errors import (
    CapacityExhaustedError,
    ConflictError,
    InvalidInputError,
    LeaseLostError,
    WorktreePoolError,
)
from debug_server.model import Worktree, WorktreeStatus
from debug_server.worktrees.backend import WorkspaceBackend, choose_backend
from debug_server.worktrees.leases import InUse, LeaseHolders, WorktreeLease, WorktreeStore
from debug_server.worktrees.locks import file_lock, sweep_private
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.patches import SessionPatch, apply_patch
from debug_server.worktrees.set_aside import SetAside
from debug_server.worktrees.settings import WorktreePoolSettings
from debug_server.worktrees.snapshots import diff_workspace
from debug_server.worktrees.submodules import Submodules
from debug_server.worktrees.usage import processes_under
from debug_server.worktrees.waiting import WaitingLine

_LOG = logging.getLogger(__name__)
_RECOVER_SECONDS = 60.0
_LOCK_TIMEOUT = 60.0
_HEX_DIGITS = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    commit: str
    owner: str
    environment_hash: str | None


class WorktreePool:
    """Leases workspaces of one repository on this machine; any number of threads and processes may share it."""

    def __init__(
        self,
        metadata_store: WorktreeStore,
        settings: WorktreePoolSettings,
        *,
        now: Callable[[], datetime] | None = None,
        in_use: InUse | None = None,
        holders: LeaseHolders | None = None,
    ) -> None:
        self.settings = settings
        self._store = metadata_store
        self._now = now or (lambda: datetime.now(UTC))
        self._in_use = in_use
        self._holders = holders
        self._recovered = -math.inf
        self.mirror = self._mirror(settings.bare_path, settings.remote_url)
        self._submodules = Submodules(self.mirror, self._mirror) if settings.submodules else None

    def _mirror(self, bare_path: Path, remote_url: str) -> Mirror:
        return Mirror(
            bare_path,
            remote_url,
            fetch_timeout=self.settings.fetch_timeout,
            max_fetch_bytes=self.settings.max_fetch_bytes,
            refresh_age=self.settings.refresh_age.total_seconds(),
            trust=self.settings.trust,
        )

    @cached_property
    def backend(self) -> WorkspaceBackend:
        """What makes the workspaces here."""
        return choose_backend(self.settings, self.mirror, self._submodules)

    @cached_property
    def _aside(self) -> SetAside:
        return SetAside(self.settings.state_dir / "set-aside")

    @cached_property
    def _line(self) -> WaitingLine:
        return WaitingLine(self.settings.state_dir / "waiting")

    def ensure_bare_repo(self) -> Path:
        """The mirror's path, cloned if it is not there."""
        return self.mirror.ensure()

    def acquire_worktree(
        self, *, commit_sha: str, owner: str, environment_hash: str | None, timeout: float | None = None
    ) -> WorktreeLease:
        """Lease a clean workspace of a commit (or branch, tag, short sha); waits in line when all are leased."""
        if not owner:
            raise InvalidInputError("owner is empty: say who leases the workspace")
        _check_kind("commit_sha", commit_sha, str, "the name of a commit, a branch or a tag")
        with _disk_errors(f"preparing a workspace of {commit_sha!r}"):
            return self._acquire(commit_sha, owner, environment_hash, timeout, keep=not self.settings.clean_checkout)

    def _acquire(
        self, commit_sha: str, owner: str, environment_hash: str | None, timeout: float | None, *, keep: bool
    ) -> WorktreeLease:
        self._recover_sometimes()
        commit = self._resolve(commit_sha)
        if self.settings.max_tree_bytes is not None and not self.backend.knows(commit):
            self.mirror.check_size(commit, self.settings.max_tree_bytes)
        self.backend.warm(commit)
        wait = self.settings.acquire_timeout if timeout is None else timeout
        request = _Request(commit=commit, owner=owner, environment_hash=environment_hash)
        lease = self._line.take(lambda: self._try_lease(request), timeout=wait)
        if lease is None:
            raise CapacityExhaustedError(
                f"all {self.settings.max_worktrees} workspaces of repository {self.settings.repository_id} stayed "
                f"leased for {wait:g} s (capacity exhausted): release one, wait longer or raise max_worktrees"
            )
        return self._prepared(lease, keep=keep)

    def release(self, lease: WorktreeLease, *, clean: bool = True) -> None:
        """Drop the holder's changes and offer the workspace to the next in line.

        With ``clean`` false they stay on the disk, to be looked at, until the workspace is leased again. They reach the
        next holder only in a pool with ``clean_checkout=False``, and only one of the same commit. What cannot be
        dropped is set aside, and ``lease.left`` says what it is.
        """
        if lease.released:
            return
        self.renew(lease)  # fences, and leaves time for the cleaning
        if clean and self.settings.clean_checkout:
            self._clean(lease)
        self._give_back(lease, commit=lease.commit_sha, environment=lease.worktree.environment_hash)

    def renew(self, lease: WorktreeLease) -> None:
        """Start the lease's time anew; LeaseLostError if it was taken over or released."""
        if lease.released or not self._store.worktrees.renew(
            lease.worktree.id, lease.lease_token, lease.generation, self._now() + self.settings.lease_ttl
        ):
            raise LeaseLostError(
                f"the lease of {lease.path} (generation {lease.generation}) is over: another holder may be using it"
            )

    def diff(self, lease: WorktreeLease) -> bytes:
        """What the holder changed, as a patch against the leased commit."""
        self.renew(lease)  # a former holder must not read the next one's files
        with _disk_errors(f"comparing {lease.path}"):
            return diff_workspace(
                lease.path,
                lease.commit_sha,
                objects=self.mirror.objects,
                index=self.backend.index(lease.path, lease.commit_sha),
                submodules=self._submodules.of(lease.commit_sha) if self._submodules else None,
                scratch=self._scratch,
            )

    def reset(self, lease: WorktreeLease, patch: SessionPatch | None = None) -> None:
        """Make the workspace the commit plus the patch again, or leave it as it is; processes keep the old files."""
        self.renew(lease)

        def finish(fresh: Path) -> None:
            if patch is not None:
                apply_patch(fresh, patch, patches_dir=self.settings.state_dir / "patches")

        with _disk_errors(f"resetting {lease.path}"):
            self.backend.renew(lease.path, lease.commit_sha, finish)

    def fork(self, lease: WorktreeLease, count: int, *, owner: str | None = None) -> list[WorktreeLease]:
        """New leases of the same commit with the files that this one has now; all of them or none."""
        self.renew(lease)
        self._check_room(count)
        made: list[WorktreeLease] = []
        try:
            for _ in range(count):
                with _disk_errors(f"copying {lease.path}"):
                    holder = owner or lease.worktree.owner or "fork"
                    made.append(self._acquire(lease.commit_sha, holder, lease.environment_hash, 0.0, keep=False))
                    self.backend.fork(lease.path, made[-1].path, lease.commit_sha)
        except BaseException:
            for fresh in made:
                self.release(fresh)
            raise
        return made

    def _check_room(self, count: int) -> None:
        """Said at once: a line for all of them together would keep the first ones from everybody else."""
        now = self._now()
        leased = sum(row.lease_expires_at is not None and row.lease_expires_at > now for row in self._rows())
        free = self.settings.max_worktrees - leased
        if count > free:
            raise CapacityExhaustedError(
                f"{count} forks need as many free workspaces, and {free} of the {self.settings.max_worktrees} of "
                f"repository {self.settings.repository_id} are free (capacity exhausted): close sessions, or raise "
                "max_worktrees"
            )

    def recover(self) -> list[Path]:
        """Clean every workspace whose lease expired and in which nothing runs, and what killed processes left."""
        self._expire_abandoned()
        paths = []
        for row in self._store.worktrees.expired(self._now()):
            if not self._is_ours(row) or self._busy(row):
                continue
            with self._lock():
                lease = self._lease(row, _Request(commit=row.commit_sha or "", owner="recover", environment_hash=None))
            if lease is not None:
                self._clean(lease)
                self._give_back(lease, commit=row.commit_sha, environment=None)
                paths.append(lease.path)
        self._aside.retry(self.backend.discard)
        self.backend.recover()
        sweep_private(self._scratch)
        return paths

    def _expire_abandoned(self) -> None:
        """End the leases of dead processes now: nobody is left to renew or release them."""
        if self._holders is None:
            return
        now = self._now()
        running = [row for row in self._rows() if row.lease_expires_at is not None and row.lease_expires_at > now]
        for row in self._holders.abandoned(running):
            if row.lease_token is not None and self._store.worktrees.renew(
                row.id, row.lease_token, row.generation, now
            ):
                _LOG.info("lease_abandoned", extra={"path": row.path, "holder": row.process})

    def reclaim_stale_worktrees(self, *, max_idle_age: timedelta, max_bytes: int | None = None) -> list[Path]:
        """Remove workspaces that were idle for longer than ``max_idle_age``, and trees unused for as long.

        Beyond ``max_bytes`` on the disk the longest idle workspaces go as well, whatever their age.
        """
        _check_kind("max_idle_age", max_idle_age, timedelta, "a datetime.timedelta")
        self.recover()
        limit = self._now() - max_idle_age
        removed = []
        with self._lock():
            rows = sorted(self._rows(), key=lambda row: row.updated_at)
            sizes = {row.id: self.backend.disk_bytes(Path(row.path)) for row in rows} if max_bytes is not None else {}
            for row in rows:
                path = Path(row.path)
                over = max_bytes is not None and sum(sizes.values()) > max_bytes and sizes[row.id] > 0
                unwanted = row.status is WorktreeStatus.IDLE and (row.updated_at <= limit or over)
                if unwanted and (row.commit_sha or path.exists()):
                    self.backend.discard(path)
                    self._store.worktrees.clear(row.id)
                    sizes.pop(row.id, None)
                    removed.append(path)
        self.backend.collect(unused_since=limit.timestamp())
        return removed

    def describe(self) -> list[dict[str, Any]]:
        """The pool's workspaces as plain mappings, for people and surfaces."""
        return [
            {
                "id": row.id,
                "path": row.path,
                "status": row.status.value,
                "commit": row.commit_sha,
                "environment_hash": row.environment_hash,
                "owner": row.owner,
                "lease_expires_at": row.lease_expires_at,
                "generation": row.generation,
                "backend": row.backend,
                "updated_at": row.updated_at,
            }
            for row in self._rows()
        ]

    def _resolve(self, ref: str) -> str:
        if len(ref) == 40 and _HEX_DIGITS.issuperset(ref) and self.backend.knows(ref):
            return ref
        return self.mirror.resolve(ref)

    def _try_lease(self, request: _Request) -> WorktreeLease | None:
        with self._lock():
            rows = self._rows()
            for row in self._candidates(rows, request):
                if lease := self._lease(row, request):
                    return lease
            if len(rows) >= self.settings.max_worktrees:
                return None
            row = self._store.worktrees.add(self.settings.repository_id, str(self._new_path()), self.backend.name)
            return self._lease(row, request)

    def _candidates(self, rows: list[Worktree], request: _Request) -> Iterator[Worktree]:
        def fit(row: Worktree) -> tuple[bool, bool, datetime]:
            return (
                row.environment_hash != request.environment_hash,
                row.commit_sha != request.commit,
                row.updated_at,
            )

        yield from sorted((row for row in rows if row.status is WorktreeStatus.IDLE), key=fit)
        now = self._now()
        for row in rows:
            expired = row.status is not WorktreeStatus.IDLE and row.lease_expires_at and row.lease_expires_at <= now
            if expired and not self._busy(row):
                yield row

    def _lease(self, row: Worktree, request: _Request) -> WorktreeLease | None:
        token = secrets.token_urlsafe(24)
        leased = self._store.worktrees.lease(
            worktree_id=row.id,
            owner=request.owner,
            lease_token=token,
            commit_sha=request.commit,
            environment_hash=request.environment_hash,
            expires_at=self._now() + self.settings.lease_ttl,
            process=self._holders.process if self._holders is not None else None,
        )
        if leased is None:
            return None
        wanted = request.environment_hash
        return WorktreeLease(
            worktree=leased,
            lease_token=token,
            path=Path(leased.path),
            commit_sha=request.commit,
            environment_hash=wanted,
            needs_dependency_sync=wanted is not None and wanted != row.environment_hash,
            pool=self,
            generation=leased.generation,
        )

    def _prepared(self, lease: WorktreeLease, *, keep: bool) -> WorktreeLease:
        try:
            self.backend.prepare(lease.path, lease.commit_sha, keep=keep)
            busy = self._store.worktrees.mark_busy(lease.worktree.id, lease.lease_token, lease.generation)
        except BaseException:
            self._clean(lease)
            self._give_back(lease, commit=None, environment=None)
            raise
        if not busy:
            raise LeaseLostError(f"preparing {lease.path} took longer than the lease of {self.settings.lease_ttl}")
        return lease

    def _clean(self, lease: WorktreeLease) -> None:
        """Drop what the holder left; a directory that resists is set aside, and the workspace gets another one."""
        try:
            self.backend.clean(lease.path)
        except (OSError, WorktreePoolError) as error:
            lease.left = f"{lease.path} could not be cleaned and was set aside: {error}"
            self._aside.add(lease.path, reason=str(error))
            moved = self._store.worktrees.move(
                lease.worktree.id, lease.lease_token, lease.generation, str(self._new_path())
            )
            if not moved:
                raise LeaseLostError(f"the lease of {lease.path} ended while it was being cleaned") from error

    def _new_path(self) -> Path:
        return self.settings.worktree_root.absolute() / f"wt-{secrets.token_hex(5)}"

    def _give_back(self, lease: WorktreeLease, *, commit: str | None, environment: str | None) -> None:
        lease.released = True
        try:
            self._store.worktrees.release(
                lease.worktree.id,
                lease.lease_token,
                lease.generation,
                commit_sha=commit,
                environment_hash=environment,
            )
        except ConflictError as error:
            raise LeaseLostError(f"the lease of {lease.path} ended while it was being released") from error
        finally:
            self._line.wake()

    def _recover_sometimes(self) -> None:
        """Now and then, so that what a killed holder left does not outlive its lease for long."""
        period = min(self.settings.lease_ttl.total_seconds(), _RECOVER_SECONDS)
        if time.monotonic() - self._recovered >= period:
            self._recovered = time.monotonic()
            self.recover()

    def _rows(self) -> list[Worktree]:
        return [row for row in self._store.worktrees.page(self.settings.repository_id) if self._is_ours(row)]

    def _is_ours(self, row: Worktree) -> bool:
        ours = Path(row.path).parent == self.settings.worktree_root.absolute()
        return ours and row.repository_id == self.settings.repository_id

    def _busy(self, row: Worktree) -> bool:
        return bool(self._in_use and self._in_use(row)) or bool(processes_under(Path(row.path)))

    @property
    def _scratch(self) -> Path:
        return self.settings.state_dir / "scratch"

    def _lock(self) -> AbstractContextManager[None]:
        make_private(self.settings.state_dir)
        return file_lock(self.settings.state_dir / "pool.lock", timeout=_LOCK_TIMEOUT)


def _check_kind(name: str, value: object, kind: type, wanted: str) -> None:
    if not isinstance(value, kind):
        raise InvalidInputError(f"{name} is {value!r}: it must be {wanted}")


@contextmanager
def _disk_errors(doing: str) -> Iterator[None]:
    """A full or broken disk, wherever it strikes, is one error of ours."""
    try:
        yield
    except OSError as error:
        raise WorktreePoolError(f"{doing}: {error.strerror or error}") from error
