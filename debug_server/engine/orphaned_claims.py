"""Finds claims that the store has for this process but the process does not know: the store's reply was lost."""

from __future__ import annotations

from collections.abc import Set

from debug_server.runner.recovery import Claim
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore


class OrphanedClaims:
    """Compares the claims in the store with the active commands, in two successive rounds."""

    def __init__(self, *, store: MetadataStore, supervisor: WorkerSupervisor) -> None:
        self._store = store
        self._supervisor = supervisor
        self._suspects: set[Claim] = set()

    def find(self, *, busy: Set[int]) -> set[Claim]:
        """Claims whose command was not in ``busy`` in two rounds: after one, a new claim may not be in it yet."""
        owner, pipeline = self._supervisor.owner, self._supervisor.pipeline
        claimed = [row for row in self._store.queue.claimed() if row.owner == owner and not row.plan.inline]
        known = {*busy, *pipeline.running, *pipeline.unrecorded}  # read after the claims
        before = self._suspects
        self._suspects = {(row.id, row.attempt) for row in claimed if row.id not in known}
        return before & self._suspects
