"""The right to use a workspace: limited in time, fenced by generation.

idle --lease--> reserved --prepared--> busy --release--> idle
                   |                     |
                   +------ expires ------+--> leased anew (generation + 1) once nothing runs in it

A lease expires when its time is over, or at once when its process is dead and no open session uses it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from debug_server.errors import DebugServerError, LeaseLostError
from debug_server.model import Worktree

if TYPE_CHECKING:
    from debug_server.worktrees.patches import SessionPatch
    from debug_server.worktrees.settings import WorktreePoolSettings

_LOG = logging.getLogger(__name__)
InUse = Callable[[Worktree], bool]


class WorktreeRows(Protocol):
    """The workspace rows of the store."""

    def add(self, repository_id: int, path: str, backend: str) -> Worktree:
        """A new idle row."""

    def page(self, repository_id: int) -> list[Worktree]:
        """A repository's rows."""

    def lease(
        self,
        *,
        worktree_id: int,
        owner: str,
        lease_token: str,
        commit_sha: str,
        environment_hash: str | None,
        expires_at: datetime,
        process: str | None = None,
    ) -> Worktree | None:
        """Take an idle or expired row, generation + 1; None if another holder has it."""

    def mark_busy(self, worktree_id: int, lease_token: str, generation: int) -> bool:
        """reserved -> busy, if the lease is still ours."""

    def renew(self, worktree_id: int, lease_token: str, generation: int, expires_at: datetime) -> bool:
        """Extend, if the lease is still ours."""

    def release(
        self,
        worktree_id: int,
        lease_token: str,
        generation: int,
        *,
        commit_sha: str | None,
        environment_hash: str | None,
    ) -> bool:
        """Back to idle; False if it is already idle, ConflictError if another holder has it."""

    def move(self, worktree_id: int, lease_token: str, generation: int, path: str) -> bool:
        """Give the row another directory, if the lease is still ours."""

    def expired(self, now: datetime) -> list[Worktree]:
        """Leased rows whose time is over."""

    def clear(self, worktree_id: int) -> Worktree:
        """Forget the commit and the environment."""


class WorktreeStore(Protocol):
    """The part of the metadata store that leasing needs."""

    @property
    def worktrees(self) -> WorktreeRows:
        """The rows of workspaces."""


class LeaseHolders(Protocol):
    """Detects leases of crashed processes before their time is over."""

    @property
    def process(self) -> str:
        """The name of this process, stored with its leases."""

    def abandoned(self, rows: Sequence[Worktree]) -> list[Worktree]:
        """The rows whose process is known to be dead and which no open session uses."""


class LeasingPool(Protocol):
    """The pool of a lease, as the lease uses it."""

    @property
    def settings(self) -> WorktreePoolSettings:
        """The settings, with the full time of a lease."""

    def release(self, lease: WorktreeLease, *, clean: bool = True) -> None:
        """Take the workspace back."""

    def renew(self, lease: WorktreeLease) -> None:
        """Extend the lease; LeaseLostError if it is over."""

    def diff(self, lease: WorktreeLease) -> bytes:
        """The holder's changes, as a patch."""

    def reset(self, lease: WorktreeLease, patch: SessionPatch | None = None) -> None:
        """Restore the commit plus the patch."""

    def fork(self, lease: WorktreeLease, count: int, *, owner: str | None = None) -> list[WorktreeLease]:
        """New leases with a copy of the files."""


@dataclass(slots=True, kw_only=True, eq=False)
class WorktreeLease:
    """The right to use a workspace until it is released or expires; leaving the ``with`` block releases it."""

    worktree: Worktree
    lease_token: str = field(repr=False)
    path: Path
    commit_sha: str  # full
    environment_hash: str | None
    needs_dependency_sync: bool  # the workspace was last used with other dependencies
    pool: LeasingPool = field(repr=False)
    generation: int
    released: bool = False
    left: str | None = None  # after the release: what could not be removed, as a message

    def release(self, clean: bool = True) -> None:
        """Give the workspace back; a second call does nothing. LeaseLostError if the lease is over."""
        self.pool.release(self, clean=clean)

    def renew(self) -> None:
        """Extend the lease by its full time from now; LeaseLostError if it is over."""
        self.pool.renew(self)

    def diff(self) -> bytes:
        """The changes since the commit, as a patch that applies to it."""
        return self.pool.diff(self)

    def reset(self, patch: SessionPatch | None = None) -> None:
        """Restore the commit plus the patch."""
        self.pool.reset(self, patch)

    def fork(self, count: int, *, owner: str | None = None) -> list[WorktreeLease]:
        """``count`` new leases with a copy of the files that this one has now."""
        return self.pool.fork(self, count, owner=owner)

    @contextmanager
    def kept_alive(self) -> Iterator[Self]:
        """Renew the lease while the block runs."""
        done = threading.Event()
        thread = threading.Thread(target=self._renew_until, args=(done,), name="lease", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            done.set()
            thread.join()

    def _renew_until(self, done: threading.Event) -> None:
        period = self.pool.settings.lease_ttl.total_seconds() / 3
        while not done.wait(period):
            try:
                self.renew()
            except LeaseLostError as error:
                _LOG.warning("lease_lost", extra={"path": str(self.path), "error": str(error)})
                return
            except DebugServerError as error:  # the store is unreachable: there is time for another attempt
                _LOG.warning("renewal_failed", extra={"path": str(self.path), "error": str(error)})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LeaseLostError:
            if error is None:  # do not hide the first error
                raise


__all__ = ["InUse", "LeaseHolders", "WorktreeLease", "WorktreeStore"]
