"""Finds claims that the store has for this process but the process does not know: the store's reply was lost."""

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
        """Claimed commands that were not in ``busy`` in two rounds: after one, a new claim may not be in it yet."""
        owner, pipeline = self._supervisor.owner, self._supervisor.pipeline
        claimed = {row.id for row in self._store.queue.claimed() if row.owner == owner and not row.plan.inline}
        before = self._suspects
        self._suspects = claimed - busy - {*pipeline.running, *pipeline.unrecorded}
        return before & self._suspects
