"""The workers as a part of the one server: started with it, drained by its signal, in its probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from debug_server.workers.state import CRITICAL_FAILURES, Phase
from debug_server.workers.status import restart_advice
from debug_server.workers.supervisor import ServiceSupervisor
from debug_server.workers.workers import Workers


class WorkersPart:
    """No routes of its own: the verbs are the service's."""

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
        """From the start of every worker to the empty trees."""
        return self._workers.running()

    def drain(self) -> None:
        """Every worker takes nothing new, and ends within its own grace."""
        self._workers.drain()

    async def drained(self) -> None:
        """Until every worker has ended."""
        await self._workers.drained()

    def health(self) -> Mapping[str, Any]:
        """How many there are, how many are ready, and which of them needs an operator."""
        workers = self._workers.all()
        counts = {"declared": len(workers), "ready": sum(worker.is_ready for worker in workers)}
        troubles = [_trouble(worker) for worker in workers if _is_bad(worker)]
        return {"workers": counts, **({"degraded": "; ".join(troubles)} if troubles else {})}

    def readiness(self) -> tuple[str, Mapping[str, Any]]:
        """No when one gave up, or crashes again and again. One that merely starts keeps nobody waiting."""
        return self._verdict(), self.health()

    def liveness(self) -> tuple[str, Mapping[str, Any]]:
        """A server outlives any worker."""
        return "ok", self.health()

    def _verdict(self) -> str:
        bad = [worker for worker in self._workers.all() if _is_bad(worker)]
        if not bad:
            return "ok"
        worker = bad[0]
        return f"worker {worker.name}/{worker.instance} failed {worker.machine.failures} times in a row"


def _is_bad(worker: ServiceSupervisor) -> bool:
    return worker.machine.phase is Phase.FAILED or worker.machine.failures >= CRITICAL_FAILURES


def _trouble(worker: ServiceSupervisor) -> str:
    if worker.machine.phase is Phase.FAILED:
        return restart_advice(worker.name)
    return f"worker {worker.name} failed {worker.machine.failures} times in a row"
