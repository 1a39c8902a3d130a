"""The workers as a part of the server: started and drained with it, shown in its probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from debug_server.workers.state import CRITICAL_FAILURES, Phase
from debug_server.workers.status import restart_advice
from debug_server.workers.supervisor import ServiceSupervisor
from debug_server.workers.workers import Workers


class WorkersPart:
    """The workers; their verbs are in the service, so this part has no routes."""

    name = "workers"

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def routes(self) -> Sequence[Any]:
        """None."""
        return ()

    def grpc_services(self) -> Mapping[str, Any]:
        """None."""
        return {}

    def running(self) -> AbstractAsyncContextManager[None]:
        """Starts all workers; ends with empty process trees."""
        return self._workers.running()

    def drain(self) -> None:
        """Every worker stops taking requests, and ends within its grace."""
        self._workers.drain()

    async def drained(self) -> None:
        """Wait until every worker has ended."""
        await self._workers.drained()

    def health(self) -> Mapping[str, Any]:
        """The number of workers, of ready ones, and which need an operator."""
        workers = self._workers.all()
        counts = {"declared": len(workers), "ready": sum(worker.is_ready for worker in workers)}
        troubles = [_problem(worker) for worker in workers if _is_bad(worker)]
        return {"workers": counts, **({"degraded": "; ".join(troubles)} if troubles else {})}

    def readiness(self) -> tuple[str, Mapping[str, Any]]:
        """Not ready if a worker has reached its restart limit or keeps crashing; a starting one does not count."""
        return self._verdict(), self.health()

    def liveness(self) -> tuple[str, Mapping[str, Any]]:
        """Always ok: the server outlives its workers."""
        return "ok", self.health()

    def _verdict(self) -> str:
        bad = [worker for worker in self._workers.all() if _is_bad(worker)]
        if not bad:
            return "ok"
        worker = bad[0]
        return f"worker {worker.name}/{worker.instance} failed {worker.machine.failures} times in a row"


def _is_bad(worker: ServiceSupervisor) -> bool:
    return worker.machine.phase is Phase.FAILED or worker.machine.failures >= CRITICAL_FAILURES


def _problem(worker: ServiceSupervisor) -> str:
    if worker.machine.phase is Phase.FAILED:
        return restart_advice(worker.name)
    return f"worker {worker.name} failed {worker.machine.failures} times in a row"
