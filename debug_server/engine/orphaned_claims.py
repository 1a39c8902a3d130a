"""Finds claims of this process that it does not know of: the connection broke before the store's answer arrived."""

from __future__ import annotations

from collections.abc import Set

from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore


class OrphanedClaims:
    """Compares the claims in the store with the active commands, in two successive rounds."""

    def __init__(self, *, store: MetadataStore, supervisor: WorkerSupervisor) -> None:
        self._store = store
        self._supervisor = supervisor
        self._suspects: set[int] = set()

    def find(self, *, busy: Set[int]) -> set[int]:
        """The commands without a thread in two rounds; in one round, a new claim may not be in ``busy`` yet."""
        owner, pipeline = self._supervisor.owner, self._supervisor.pipeline
        claimed = {row.id for row in self._store.queue.claimed() if row.owner == owner and not row.plan.inline}
        before = self._suspects
        self._suspects = claimed - busy - {*pipeline.running, *pipeline.unrecorded}
        return before & self._suspects
