"""Periodic work on the disk: expired leases, old workspaces, mirrors, environments, old history.

It has a thread of its own, because a fetch or the check of a large environment may take minutes, and the housekeeper
must renew leases meanwhile. Each step may be repeated, run in several processes at once, and be killed at any point.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from functools import partial

from debug_server.engine.kept_patches import remove_patches
from debug_server.engine.retention import Retention
from debug_server.engine.run_or_log import run_or_log
from debug_server.engine.sessions import Sessions
from debug_server.model import Repository
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore

_LOG = logging.getLogger(__name__)
_ROUND_SECONDS = 30.0
_COLLECT_SECONDS = 600.0  # between two collections by age and size
_JOIN_SECONDS = 1.0  # the current step may be interrupted


class Maintenance:
    """Maintains the workspaces and mirrors of every repository, and the environments."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        sessions: Sessions,
        supervisor: WorkerSupervisor,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._environments = supervisor.environments
        self._settings = supervisor.settings.environments
        self._patches_dir = supervisor.paths.patches_dir
        self._patch_budget = supervisor.settings.history.patch_budget
        self._done = threading.Event()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._retention = Retention(
            store=store, paths=supervisor.paths, settings=supervisor.settings.history, stopped=self._done.is_set
        )
        self._collected_at = time.monotonic()

    def start(self) -> None:
        """Start the thread; the first round starts with ``wake``, or after a pause."""
        self._store.keep_reserve()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Start the next round now; call it only after the leases of an earlier server's sessions are renewed."""
        self._woken.set()

    def stop(self) -> None:
        """Start no further step."""
        self._done.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._is_done_after(_ROUND_SECONDS):
            self.recover_leases()
            run_or_log("maintenance_failed", self._sessions.remove_leftovers, step="repository_removal")
            run_or_log("maintenance_failed", self._retention.remove_old, step="history_removal")
            self._remove_patches(always=False)
            self._store.keep_reserve()
            if time.monotonic() - self._collected_at >= _COLLECT_SECONDS:
                self._collected_at = time.monotonic()
                self.collect()

    def _is_done_after(self, seconds: float) -> bool:
        self._woken.wait(seconds)
        self._woken.clear()
        return self._done.is_set()

    def recover_leases(self) -> None:
        """Recover every workspace whose lease has expired or whose process is dead, if no process runs in it."""
        for repository in self._repositories():
            run_or_log("maintenance_failed", partial(self._recover, repository), step="lease_recovery")

    def _recover(self, repository: Repository) -> None:
        self._sessions.pool(repository).recover()

    def collect(self) -> None:
        """Collect workspaces, trees and environments, maintain mirrors, and retry failed removals."""
        for repository in self._repositories():
            if not self._done.is_set():
                run_or_log("maintenance_failed", partial(self._maintain, repository), step="workspace_maintenance")
        run_or_log("maintenance_failed", self._sessions.retry_removals, step="scratch_removal")
        self._remove_patches(always=True)
        if self._environments is not None and not self._done.is_set():
            run_or_log("maintenance_failed", self._maintain_environments, step="environment_maintenance")

    def _remove_patches(self, *, always: bool) -> None:
        removal = partial(remove_patches, self._store, self._patches_dir, budget=self._patch_budget, always=always)
        run_or_log("maintenance_failed", removal, step="patch_removal")

    def _maintain(self, repository: Repository) -> None:
        settings, pool = self._sessions.settings, self._sessions.pool(repository)
        removed = pool.reclaim_stale_worktrees(
            max_idle_age=timedelta(seconds=settings.idle_seconds), max_bytes=settings.budget
        )
        if removed:
            _LOG.info("workspaces_reclaimed", extra={"repository": repository.name, "count": len(removed)})
        pool.mirror.repack(older_than=settings.repack_seconds)
        pool.mirror.refresh(older_than=settings.refresh_seconds)

    def _maintain_environments(self) -> None:
        assert self._environments is not None
        wanted = self._settings
        found = self._environments.collect_garbage(max_idle=wanted.idle_seconds, max_bytes=wanted.budget)
        if found.removed:
            fields = {"count": len(found.removed), "freed_bytes": found.freed_bytes}
            _LOG.info("environments_collected", extra=fields)
        for item in self._environments.installed():
            if self._done.is_set():
                return
            age = item.verified_seconds_ago
            due = age is None or age > wanted.verify_seconds
            if due and (wrong := self._environments.verify(item.fingerprint)):
                _LOG.warning("environment_damaged", extra={"environment": item.key, "files": len(wrong)})

    def _repositories(self) -> list[Repository]:
        return run_or_log("maintenance_failed", self._leased, step="repositories") or []

    def _leased(self) -> list[Repository]:
        return [row for row in self._store.repositories.page() if self._store.worktrees.page(row.id)]
