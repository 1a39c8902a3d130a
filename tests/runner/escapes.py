"""The escape scenarios: an artist, an end, and the proof that nothing of its tree is left."""

from __future__ import annotations

import os
import secrets
import signal
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
_TIMEOUT = 5.0


def start_ready(bench: Bench, argv: Sequence[str], *, seconds: float | None, pids: int | None = None) -> Started:
    """A command that has said ``ready``; one that its time limit ended before proves nothing, and gets more time."""
    while True:
        started = bench.start(argv, limits=Limits(pids=pids, wall_seconds=seconds))
        if started.says(b"ready"):
            return started
        assert seconds is not None and started.result().exit.reason is ExitReason.TIMED_OUT
        seconds *= 2


def escape(bench: Bench, artist: str, end: str) -> None:
    """Run one artist, end it one way, and look for its processes when it has ended."""
    mark = f"mark-{secrets.token_hex(8)}"
    # Without a cgroup it is a limit of the whole user, and would stop the others' escapes.
    pids = 40 if artist == "fork_storm" else None
    seconds = _TIMEOUT if end == "timeout" else None
    started = start_ready(bench, program("escape.py", artist, mark), seconds=seconds, pids=pids)
    if end == "cancel":
        bench.supervisor.pipeline.cancel(started.command.id)
    elif end == "keeper_death":
        os.kill(started.handle()["keeper"]["pid"], signal.SIGKILL)
    result = started.result()
    assert result.exit.reason is _REASONS[end]
    if result.exit.mechanism == "session" and end == "keeper_death":
        # What wipes its environment, or is never the same process for long, is known to the fork server alone.
        eventually(lambda: not carrying(mark), what=f"the end of {artist} after {end}")
    else:
        assert not carrying(mark), f"{artist} goes on after {end}"


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
