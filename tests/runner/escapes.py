"""The escape scenarios: an artist, an end, and the proof that nothing of its tree is left."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from debug_server.model import ExitReason, Limits
from tests.running import Bench, Started, carrying, eventually, program

ARTISTS = (
    "setsid",
    "double_fork",
    "nohup",
    "term_ignored",
    "stopped",
    "fork_storm",
    "pipe_holder",
    "hydra",
    "wiped",
)
ENDS = ("cancel", "timeout", "keeper_death")
_REASONS = {"cancel": ExitReason.CANCELLED, "timeout": ExitReason.TIMED_OUT, "keeper_death": ExitReason.LOST}
_TIMEOUT = 5.0  # an artist is ready before it is over


def escape(bench: Bench, artist: str, end: str) -> None:
    """Run one artist, end it one way, and look for its processes until there are none."""
    mark = f"mark-{secrets.token_hex(8)}"
    # Without a cgroup it is a limit of the whole user, and would stop the others' escapes.
    pids = 40 if artist == "fork_storm" else None
    limits = Limits(pids=pids, wall_seconds=_TIMEOUT if end == "timeout" else None)
    started = bench.start(program("escape.py", artist, mark), limits=limits)
    started.await_output(b"ready")
    if end == "timeout":
        time.sleep(max(0.0, _TIMEOUT - _age(started)))
    elif end == "cancel":
        bench.supervisor.pipeline.cancel(started.command.id)
    else:
        os.kill(started.handle()["keeper"]["pid"], signal.SIGKILL)
    eventually(lambda: not carrying(mark), what=f"the end of {artist} after {end}")
    assert started.result().exit.reason is _REASONS[end]
    assert not carrying(mark)


def _age(started: Started) -> float:
    began: int = started.handle()["started_ns"]
    return time.time() - began / 1e9


def escape_all(bench: Bench, ends: Sequence[str] = ENDS, threads: int = 4) -> list[str]:
    """Every artist and each of these ends; returns what went wrong."""

    def attempt(case: tuple[str, str]) -> str | None:
        try:
            escape(bench, *case)
        except AssertionError as error:
            return f"{case}: {error}"
        return None

    cases = [(artist, end) for artist in ARTISTS for end in ends]
    with ThreadPoolExecutor(threads) as pool:
        return [wrong for wrong in pool.map(attempt, cases) if wrong is not None]
