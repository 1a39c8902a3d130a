"""Claims of this process that nothing in it works on: the answer to one was lost with the connection to the store."""

from __future__ import annotations

from collections.abc import Set

from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore


class ForgottenClaims:
    """Looks from time to time, and remembers the last look."""

    def __init__(self, *, store: MetadataStore, supervisor: WorkerSupervisor) -> None:
        self._store = store
        self._supervisor = supervisor
        self._unattended: set[int] = set()

    def find(self, *, busy: Set[int]) -> set[int]:
        """The commands that were unattended in two looks: a claim made just now is not among the ``busy`` ones yet."""
        owner, pipeline = self._supervisor.owner, self._supervisor.pipeline
        claimed = {row.id for row in self._store.queue.claimed() if row.owner == owner and not row.plan.inline}
        before = self._unattended
        self._unattended = claimed - busy - {*pipeline.running, *pipeline.unsettled}
        return before & self._unattended
