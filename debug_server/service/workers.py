"""The verbs of supervised workers: list, restart, reset, stop."""

from __future__ import annotations

import asyncio

from debug_server import messages as m
from debug_server.errors import NotFoundError
from debug_server.service.caller import Caller
from debug_server.workers.supervisor import ServiceSupervisor
from debug_server.workers.workers import Workers


class WorkerVerbs:
    """For operators; workers run in the server only."""

    def __init__(self, workers: Workers | None) -> None:
        self._workers = workers

    async def page(self, caller: Caller, request: m.PageRequest) -> m.WorkerList:
        """The status of every instance; the cursor is the number of instances before the page."""
        statuses = [] if self._workers is None else self._workers.statuses()
        end = request.after + request.limit
        return m.WorkerList(items=statuses[request.after : end], next_after=end if end < len(statuses) else None)

    async def restart(self, caller: Caller, request: m.WorkerRef) -> m.WorkerList:
        """Drain each worker and start a new process; a stopped worker starts at once."""
        chosen = self._chosen(request)
        await asyncio.gather(*(worker.restart() for worker in chosen))
        return _shown(chosen)

    async def reset(self, caller: Caller, request: m.WorkerRef) -> m.WorkerList:
        """Clear the failures; a worker that gave up, waits or is stopped starts now."""
        chosen = self._chosen(request)
        for worker in chosen:
            worker.reset()
        return _shown(chosen)

    async def stop(self, caller: Caller, request: m.WorkerRef) -> m.WorkerList:
        """Drain each worker and stop it until it is restarted or reset."""
        chosen = self._chosen(request)
        await asyncio.gather(*(worker.halt() for worker in chosen))
        return _shown(chosen)

    def _chosen(self, request: m.WorkerRef) -> list[ServiceSupervisor]:
        if self._workers is None:
            raise NotFoundError(f"there is no worker {request.worker!r}: workers run in the server only")
        found = self._workers.named(request.worker)
        if request.instance is None:
            return found
        if request.instance >= len(found):
            raise NotFoundError(
                f"worker {request.worker!r} has no instance {request.instance}: use 0 to {len(found) - 1}"
            )
        return [found[request.instance]]


def _shown(workers: list[ServiceSupervisor]) -> m.WorkerList:
    return m.WorkerList(items=[worker.status() for worker in workers])
