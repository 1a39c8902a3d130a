"""The workspaces of a repository: leases them, prepares them before use and cleans them afterwards."""

from __future__ import annotations

import atexit
import logging
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from debug_server.disk import is_mounted, make_private
from debug_server.disk.ownership import Owner, remove_dead
from debug_server.errors import (
    CapacityExhaustedError,
    ConflictError,
    DiskFullError,
    InvalidInputError,
    LeaseLostError,
    WorktreePoolError,
)
from debug_server.model import Worktree, WorktreeStatus
from debug_server.worktrees.backend import WorkspaceBackend, choose_backend
from debug_server.worktrees.leases import InUse, LeaseHolders, WorktreeLease, WorktreeStore
from debug_server.worktrees.locks import file_lock, remove_abandoned, scratch_folder
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.patches import SessionPatch, apply_patch
from debug_server.worktrees.process_leases import ProcessLeases
from debug_server.worktrees.processes import processes_under
from debug_server.worktrees.quarantine import Quarantine
from debug_server.worktrees.settings import WorktreePoolSettings
from debug_server.worktrees.submodules import Submodules
from debug_server.worktrees.trash import disk_bytes
from debug_server.worktrees.wait_queue import WaitQueue
from debug_server.worktrees.workspace_diff import diff_workspace

_LOG = logging.getLogger(__name__)
_RECOVER_SECONDS = 60.0
_LOCK_TIMEOUT = 60.0
_KEPT_FREE_BYTES, _KEPT_FREE_SHARE = 2 << 30, 20  # of the disk: at least 2 GiB or a twentieth stay free
OnWait = Callable[[str], None]
_HEX_DIGITS = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    commit: str
    owner: str
    environment_hash: str | None


class WorktreePool:
    """Leases workspaces of one repository on this machine; threads and processes may share it."""

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
        # Without ``holders``, an owner file in the pool's own folder shows whether this process is alive.
        self._own_leases = ProcessLeases(owners_dir=self._owners_dir, process=lambda: self._owner.name)
        self._holders: LeaseHolders = holders or self._own_leases
        self._last_recovery = -math.inf
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

    @property
    def _owners_dir(self) -> Path:
        return self.settings.state_dir / "owners"

    @cached_property
    def _owner(self) -> Owner:
        """Its file shows until the end of this process that it is alive."""
        owner, pid = Owner(self._owners_dir), os.getpid()
        atexit.register(lambda: owner.close() if os.getpid() == pid else None)  # not at the end of a forked child
        return owner

    @cached_property
    def backend(self) -> WorkspaceBackend:
        """The backend that creates the workspaces."""
        return choose_backend(self.settings, self.mirror, self._submodules)

    @cached_property
    def _quarantine(self) -> Quarantine:
        return Quarantine(self.settings.state_dir / "set-aside")

    @cached_property
    def _queue(self) -> WaitQueue:
        return WaitQueue(self.settings.state_dir / "waiting")

    def ensure_bare_repo(self) -> Path:
        """The path of the mirror, which is cloned if it is missing."""
        with _disk_errors(f"making {self.settings.bare_path}"):
            return self.mirror.ensure()

    def acquire_worktree(
        self,
        *,
        commit_sha: str,
        owner: str,
        environment_hash: str | None,
        timeout: float | None = None,
        on_wait: OnWait | None = None,
    ) -> WorktreeLease:
        """Lease a clean workspace of a commit (or branch, tag, short sha); waits in a queue when all are leased.

        ``on_wait`` is called once if it has to wait, with what it waits for.
        """
        if not owner:
            raise InvalidInputError("owner is empty: say who leases the workspace")
        _check_kind("commit_sha", commit_sha, str, "the name of a commit, a branch or a tag")
        with _disk_errors(f"preparing a workspace of {commit_sha!r}"):
            keep = not self.settings.clean_checkout
            return self._acquire(commit_sha, owner, environment_hash, timeout, keep=keep, on_wait=on_wait)

    def _acquire(
        self,
        commit_sha: str,
        owner: str,
        environment_hash: str | None,
        timeout: float | None,
        *,
        keep: bool,
        on_wait: OnWait | None = None,
    ) -> WorktreeLease:
        self._recover_if_due()
        commit = self._resolve(commit_sha)
        if self.settings.max_tree_bytes is not None and not self.backend.has(commit):
            self.mirror.check_size(commit, self.settings.max_tree_bytes)
        self.backend.build_ahead(commit)
        wait = self.settings.acquire_timeout if timeout is None else timeout
        request = _Request(commit=commit, owner=owner, environment_hash=environment_hash)

        def say(before: int) -> None:
            if on_wait is not None:
                line = f", and {before} more wait before it" if before else ""
                on_wait(f"{self._shortage('are leased')}{line}")

        lease = self._queue.take(lambda: self._try_lease(request), timeout=wait, on_wait=say)
        if lease is None:
            advice = "free space" if self.settings.max_worktrees is None else "raise max_worktrees"
            raise CapacityExhaustedError(
                f"{self._shortage(f'stayed leased for {wait:g} s')} (capacity exhausted): release one, wait longer or "
                f"{advice}"
            )
        return self._prepare_leased(lease, keep=keep)

    def _shortage(self, state: str) -> str:
        """Why there is no workspace."""
        rows = f"all {len(self._rows())} workspaces of repository {self.settings.repository_id} {state}"
        if self.settings.max_worktrees is not None:
            return rows
        free = shutil.disk_usage(self.settings.state_dir).free >> 20
        return f"{rows}, and the disk of {self.settings.worktree_root} has only {free} MiB free"

    def _has_room(self, rows: Sequence[Worktree]) -> bool:
        """Whether one more workspace may be made."""
        if self.settings.max_worktrees is not None:
            return len(rows) < self.settings.max_worktrees
        disk = shutil.disk_usage(self.settings.state_dir)
        enough = disk.free >= min(_KEPT_FREE_BYTES, disk.total // _KEPT_FREE_SHARE)
        return enough or all(row.status is WorktreeStatus.IDLE for row in rows)  # else there is nothing to wait for

    def release(self, lease: WorktreeLease, *, clean: bool = True) -> None:
        """Remove the holder's changes and offer the workspace to the next in the queue.

        With ``clean=False`` the changes stay on disk for inspection until the workspace is leased again. The next
        holder sees them only in a pool with ``clean_checkout=False``, and only for the same commit. A directory that
        cannot be cleaned is quarantined, and ``lease.left`` names it.
        """
        if lease.released:
            return
        self.renew(lease)  # fails if the lease is over, and leaves time for cleaning
        if clean and self.settings.clean_checkout:
            self._clean(lease)
        self._release_row(lease, commit=lease.commit_sha, environment=lease.worktree.environment_hash)

    def renew(self, lease: WorktreeLease) -> None:
        """Extend the lease by its full time from now; LeaseLostError if it was taken over or released."""
        if lease.released or not self._store.worktrees.renew(
            lease.worktree.id, lease.lease_token, lease.generation, self._now() + self.settings.lease_ttl
        ):
            raise LeaseLostError(
                f"the lease of {lease.path} (generation {lease.generation}) is over: another holder may be using it"
            )

    def diff(self, lease: WorktreeLease) -> bytes:
        """The holder's changes, as a patch against the leased commit."""
        self.renew(lease)  # a former holder must not read the next one's files
        with _disk_errors(f"comparing {lease.path}"):
            return diff_workspace(
                lease.path,
                lease.commit_sha,
                objects=self.mirror.objects,
                index=self.backend.index_path(lease.path, lease.commit_sha),
                submodules=self._submodules.of(lease.commit_sha) if self._submodules else None,
                scratch=self._scratch,
            )

    def reset(self, lease: WorktreeLease, patch: SessionPatch | None = None) -> None:
        """Restore the commit plus the patch, or change nothing on failure; running processes keep the old files."""
        self.renew(lease)

        def finish(fresh: Path) -> None:
            if patch is not None:
                with scratch_folder(self._scratch) as folder:  # it is stored already where it came from
                    apply_patch(fresh, patch, patches_dir=folder)

        with _disk_errors(f"resetting {lease.path}"):
            self.backend.replace(lease.path, lease.commit_sha, finish)

    def fork(self, lease: WorktreeLease, count: int, *, owner: str | None = None) -> list[WorktreeLease]:
        """``count`` new leases of the same commit with a copy of the files that this one has now; all or none."""
        self.renew(lease)
        self._check_capacity(count)
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

    def _check_capacity(self, count: int) -> None:
        """Fail at once: waiting for several workspaces would block the first ones for everybody else."""
        now, rows = self._now(), self._rows()
        if self.settings.max_worktrees is None:
            if not self._has_room(rows):
                raise CapacityExhaustedError(f"{self._shortage('are leased')} (capacity exhausted): free space")
            return
        leased = sum(row.lease_expires_at is not None and row.lease_expires_at > now for row in rows)
        free = self.settings.max_worktrees - leased
        if count > free:
            raise CapacityExhaustedError(
                f"{count} forks need {count} free workspaces, and {free} of the {self.settings.max_worktrees} of "
                f"repository {self.settings.repository_id} are free (capacity exhausted): close sessions, or raise "
                "max_worktrees"
            )

    def recover(self) -> list[Path]:
        """After a crash: clean every workspace with an expired lease and no process in it; returns their paths."""
        self._expire_abandoned()
        paths = []
        for row in self._store.worktrees.expired(self._now()):
            if not self._in_this_pool(row) or self._has_processes(row):
                continue
            with self._lock():
                lease = self._lease(row, _Request(commit=row.commit_sha or "", owner="recover", environment_hash=None))
            if lease is not None:
                self._clean(lease)
                self._release_row(lease, commit=row.commit_sha, environment=None)
                paths.append(lease.path)
        self._quarantine.retry(self.backend.discard)
        self.backend.recover()
        remove_abandoned(self._scratch)
        remove_dead(self._owners_dir)
        return paths

    def _expire_abandoned(self) -> None:
        """Let the leases of dead processes expire now: nobody will renew or release them."""
        now = self._now()
        running = [row for row in self._rows() if row.lease_expires_at is not None and row.lease_expires_at > now]
        kinds: list[LeaseHolders] = [self._own_leases]
        if self._holders is not self._own_leases:
            kinds.append(self._holders)
        for row in [row for kind in kinds for row in kind.abandoned(running)]:
            if row.lease_token is not None and self._store.worktrees.renew(
                row.id, row.lease_token, row.generation, now
            ):
                _LOG.info("lease_abandoned", extra={"path": row.path, "holder": row.process})

    def reclaim_stale_worktrees(self, *, max_idle_age: timedelta, max_bytes: int | None = None) -> list[Path]:
        """Remove workspaces that were idle for longer than ``max_idle_age``, and trees unused for as long.

        Beyond ``max_bytes`` on disk the longest idle workspaces are removed as well, whatever their age.
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

    def disk_bytes(self) -> int:
        """The disk space of workspaces, trees and temporary files; without the mirror."""
        plain = [path for path in self._paths_on_disk() if not is_mounted(path)]
        return disk_bytes(self.settings.state_dir) + sum(map(disk_bytes, plain))

    def _paths_on_disk(self) -> list[Path]:
        return [path for row in self._rows() if (path := Path(row.path)).is_dir()]

    def wait_for_removals(self, timeout: float) -> bool:
        """Wait until what was removed has left the disk; False after ``timeout`` seconds."""
        return self.backend.wait_for_removals(timeout)

    def describe(self) -> list[dict[str, Any]]:
        """The workspaces as plain mappings."""
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
        if len(ref) == 40 and _HEX_DIGITS.issuperset(ref) and self.backend.has(ref):
            return ref
        return self.mirror.resolve(ref)

    def _try_lease(self, request: _Request) -> WorktreeLease | None:
        with self._lock():
            rows = self._rows()
            for row in self._candidates(rows, request):
                if lease := self._lease(row, request):
                    return lease
            if not self._has_room(rows):
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
            if expired and not self._has_processes(row):
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
            process=self._holders.process,
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

    def _prepare_leased(self, lease: WorktreeLease, *, keep: bool) -> WorktreeLease:
        try:
            self.backend.prepare(lease.path, lease.commit_sha, keep=keep)
            busy = self._store.worktrees.mark_busy(lease.worktree.id, lease.lease_token, lease.generation)
        except BaseException:
            self._clean(lease)
            self._release_row(lease, commit=None, environment=None)
            raise
        if not busy:
            raise LeaseLostError(f"preparing {lease.path} took longer than the lease of {self.settings.lease_ttl}")
        return lease

    def _clean(self, lease: WorktreeLease) -> None:
        """Remove the holder's changes; a directory that cannot be cleaned is quarantined and replaced by a new path."""
        try:
            self.backend.clean(lease.path)
        except (OSError, WorktreePoolError) as error:
            lease.left = f"{lease.path} could not be cleaned and was quarantined: {error}"
            self._quarantine.add(lease.path, reason=str(error))
            moved = self._store.worktrees.move(
                lease.worktree.id, lease.lease_token, lease.generation, str(self._new_path())
            )
            if not moved:
                raise LeaseLostError(f"the lease of {lease.path} ended while it was being cleaned") from error

    def _new_path(self) -> Path:
        return self.settings.worktree_root.absolute() / f"wt-{secrets.token_hex(5)}"

    def _release_row(self, lease: WorktreeLease, *, commit: str | None, environment: str | None) -> None:
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
            self._queue.wake()

    def _recover_if_due(self) -> None:
        """At most once a minute, so that what a killed holder left is cleaned soon after its lease."""
        period = min(self.settings.lease_ttl.total_seconds(), _RECOVER_SECONDS)
        if time.monotonic() - self._last_recovery >= period:
            self._last_recovery = time.monotonic()
            self.recover()

    def _rows(self) -> list[Worktree]:
        return [row for row in self._store.worktrees.page(self.settings.repository_id) if self._in_this_pool(row)]

    def _in_this_pool(self, row: Worktree) -> bool:
        ours = Path(row.path).parent == self.settings.worktree_root.absolute()
        return ours and row.repository_id == self.settings.repository_id

    def _has_processes(self, row: Worktree) -> bool:
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
    """Turn an OSError into a WorktreePoolError; either, if the reason is a full disk, into a DiskFullError."""
    try:
        yield
    except (OSError, WorktreePoolError) as error:
        reason = error if isinstance(error, OSError) else error.__cause__
        if reason is not None and (full := DiskFullError.of(reason, doing)) is not None:
            raise full from error
        if isinstance(error, WorktreePoolError):
            raise
        raise WorktreePoolError(f"{doing}: {error.strerror or error}") from error
