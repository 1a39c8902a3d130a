"""Workers killed at random moments of their lives, and what must be true of the counters and the processes then."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field

from debug_server.errors import DebugServerError
from debug_server.workers.interface import WorkerChange
from debug_server.workers.spec import HandshakeReadiness
from debug_server.workers.supervisor import ServiceSupervisor
from tests.running import Bench
from tests.workers.supervising import Echo, Supervised, shake_hands, spec, supervised, timing, until

_USERS = 4
_WORKING = 0.6  # of the kills strike a worker that was ready


@dataclass(slots=True)
class Tally:
    """What was done, and what was seen."""

    kills: int = 0
    answered: int = 0
    refused: int = 0  # with the retryable error, or cut short by a death
    changes: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    counted: float = 0.0
    wrong: list[str] = field(default_factory=list)


async def campaign(bench: Bench, kills: int, seed: int) -> Tally:
    """Kill the process of one worker again and again, while it starts, while it works, while it ends."""
    chance, tally = random.Random(seed), Tally()
    one = spec(
        bench,
        "mute",
        "--children",
        1,
        readiness=HandshakeReadiness(protocol="echo"),
        timing=timing(restart_max=kills + 5, backoff_initial=0.001, backoff_maximum=0.001),
    )
    async with supervised(bench, one, handshakes={"echo": shake_hands}) as workers:
        worker = workers.pick("echo")
        worker.subscribe(lambda change: _note(tally, change))
        users = [asyncio.ensure_future(_use(worker, tally)) for _ in range(_USERS)]
        while tally.kills < kills:
            await _kill(worker, chance, tally)
        await until(lambda: worker.machine.generation == kills + 1, 60, "the last successor")
        assert await worker.wait_for_ready(60)
        for user in users:
            user.cancel()
        await asyncio.wait(users)
        _check_line(workers, worker, tally)
    return tally


async def _kill(worker: ServiceSupervisor, chance: random.Random, tally: Tally) -> None:
    """One run, ended at a moment between its spawn and some work."""
    generation = worker.machine.generation
    pid = await until(lambda: worker.machine.generation > tally.kills and worker.machine.pid, 60, "a process")
    if chance.random() < _WORKING:
        assert await worker.wait_for_ready(60)
    await asyncio.sleep(chance.choice([0.0, 0.001, 0.01, 0.05]))
    if worker.machine.pid != pid:
        tally.wrong.append(f"generation {generation} ended although nobody killed it")
    os.kill(pid, signal.SIGKILL)
    tally.kills += 1


async def _use(worker: ServiceSupervisor, tally: Tally) -> None:
    """Ask as fast as it answers; every request has an answer or a retryable end, none hangs."""
    while True:
        try:
            with worker.borrow() as generation:
                echo = generation.conversation
                assert isinstance(echo, Echo)
                async with asyncio.timeout(60):
                    answer = await echo.ask_in_turn(b"question")
                if answer == b"question":
                    tally.answered += 1
                elif generation.ending.is_set():
                    tally.refused += 1
                else:
                    tally.wrong.append(f"the answer was {answer!r}")
        except TimeoutError:
            tally.wrong.append("a request hung")
        except DebugServerError:
            tally.refused += 1
            await asyncio.sleep(0.002)


def _note(tally: Tally, change: WorkerChange) -> None:
    tally.changes[change.kind] += 1
    if change.exit is not None and change.exit.signal not in (signal.SIGKILL, None):
        tally.wrong.append(f"generation {change.generation} ended by {change.exit}")


def _check_line(workers: Supervised, worker: ServiceSupervisor, tally: Tally) -> None:
    tally.restarts = worker.machine.restarts
    tally.counted = workers.metric("codex_worker_restarts_total")
