"""Settings of a pool: repository, paths, number of workspaces, limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from debug_server.errors import ConfigurationError
from debug_server.worktrees.repository_trust import OWN_USER_ONLY, Trust

BACKENDS = ("auto", "overlay", "pool")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreePoolSettings:
    """One repository's workspaces on this machine."""

    repository_id: int
    remote_url: str
    bare_path: Path  # the mirror
    worktree_root: Path  # workspaces are its wt-<10 hex>; trees and temporary files are in its .pool-<repository_id>
    lease_ttl: timedelta = timedelta(minutes=30)
    max_worktrees: int | None = None  # None: while the disk has space
    clean_checkout: bool = True  # False: a released workspace keeps its files for the next lease of the same commit
    backend: str = "auto"  # overlay where a test mount works, else pool
    acquire_timeout: float = 30.0  # seconds in the queue when every workspace is leased
    refresh_age: timedelta = timedelta(0)  # how long a branch name is resolved without a fetch
    fetch_timeout: float = 600.0
    max_fetch_bytes: int | None = None  # limit for a single file of the mirror
    max_tree_bytes: int | None = None  # of all files of one commit
    submodules: bool = False  # whether workspaces hold their submodules
    trust: Trust = OWN_USER_ONLY  # whose repositories on this machine may be fetched from
    tree_budget_bytes: int | None = None  # the least recently used trees go when all together are larger

    def __post_init__(self) -> None:
        if self.max_worktrees is not None and self.max_worktrees < 1:
            raise ConfigurationError(f"max_worktrees={self.max_worktrees} must be at least 1")
        if self.lease_ttl <= timedelta(0):
            raise ConfigurationError(f"lease_ttl={self.lease_ttl} must be above zero")
        if self.backend not in BACKENDS:
            raise ConfigurationError(f"backend={self.backend!r} is unknown: use one of {', '.join(BACKENDS)}")

    @property
    def state_dir(self) -> Path:
        """Where the pool keeps its internal files."""
        return self.worktree_root.absolute() / f".pool-{self.repository_id}"
