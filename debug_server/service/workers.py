"""The verbs for supervised workers: look at them, replace them, forgive them, stop them."""

from __future__ import annotations

import asyncio

from debug_server import messages as m
from debug_server.errors import NotFoundError
from debug_server.service.caller import Caller
from debug_server.workers.supervisor import ServiceSupervisor
from debug_server.workers.workers import Workers


class WorkerVerbs:
    """For operators; workers run where the server does."""

    def __init__(self, workers: Workers | None) -> None:
        self._workers = workers

    async def page(self, caller: Caller, request: m.Page) -> m.WorkerList:
        """The status object of every instance; the cursor is how many came before."""
        every = [] if self._workers is None else self._workers.statuses()
        end = request.after + request.limit
        return m.WorkerList(items=every[request.after : end], next_after=end if end < len(every) else None)

    async def restart(self, caller: Caller, request: m.WorkerChoice) -> m.WorkerList:
        """Let each finish what it has, end it, start the next; one that is down starts now."""
        chosen = self._chosen(request)
        await asyncio.gather(*(worker.restart() for worker in chosen))
        return _shown(chosen)

    async def reset(self, caller: Caller, request: m.WorkerChoice) -> m.WorkerList:
        """Forget the failures; one that gave up, waits or rests starts now."""
        chosen = self._chosen(request)
        for worker in chosen:
            worker.reset()
        return _shown(chosen)

    async def stop(self, caller: Caller, request: m.WorkerChoice) -> m.WorkerList:
        """Drain and end; each rests until it is restarted or reset."""
        chosen = self._chosen(request)
        await asyncio.gather(*(worker.halt() for worker in chosen))
        return _shown(chosen)

    def _chosen(self, request: m.WorkerChoice) -> list[ServiceSupervisor]:
        if self._workers is None:
            raise NotFoundError(f"there is no worker {request.worker!r}: workers run where the server does")
        found = self._workers.named(request.worker)
        if request.instance is None:
            return found
        if request.instance >= len(found):
            raise NotFoundError(f"worker {request.worker!r} has {len(found)} instances: 0 is the first")
        return [found[request.instance]]


def _shown(workers: list[ServiceSupervisor]) -> m.WorkerList:
    return m.WorkerList(items=[worker.status() for worker in workers])
