"""Events to runners: how soon an emitter has its answer, and how soon a watcher sees what a runner wrote."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Fact, Figure, Result, Samples, Size, at_most
from tests.dispatch.governor_process import GovernorProcess, make_repository, repos_text

_RUNNERS = (
    "runners:\n  clock:\n    executor: bash\n    cmd: clock.sh\n    skills: [clock.tell]\n    repos: all\n"
    "  nothing:\n    executor: bash\n    cmd: nothing.sh\n    skills: [nothing.do]\n    repos: all\n"
)
# The shell's own clock: no process lies between looking at it and writing the line.
_FILES = {"clock.sh": "sleep 0.05; echo $EPOCHREALTIME\n", "nothing.sh": ":\n"}
_COUNTS = {Size.FULL: 200, Size.QUICK: 50, Size.SMALLEST: 3}


def measure(size: Size) -> list[Result]:
    """Both, with one watcher that follows."""
    with tempfile.TemporaryDirectory(prefix="debug-server-bench-") as folder:
        governor = GovernorProcess(Path(folder) / "governor")
        governor.configure(_RUNNERS, repos_text({"repo": make_repository(Path(folder) / "repo", _FILES)}))
        governor.start()
        try:
            return [_emit(governor, _COUNTS[size]), _first_line(governor, _COUNTS[size])]
        finally:
            governor.stop()


def _emit(governor: GovernorProcess, count: int) -> Result:
    governor.emit("warm", "nothing.do", "repo")
    samples = []
    for number in range(count):
        began = time.perf_counter()
        assert governor.emit(f"E-{number}", "nothing.do", "repo").ok
        samples.append((time.perf_counter() - began) * 1000)
        governor.events(task_filter=f"E-{number}")
    return _figure("emit_p50", samples, 5.0)


def _first_line(governor: GovernorProcess, count: int) -> Result:
    samples = []
    cursor = governor.events()[-1].cursor  # a watcher that begins now may begin after what is emitted next
    for number in range(count):
        watching = governor.stream(60.0, follow=True, cursor=cursor, task_filter=f"L-{number}")
        governor.emit(f"L-{number}", "clock.tell", "repo")
        for event in watching:
            cursor = event.cursor
            if event.event_type == "runner.stdout":
                seen = time.time()
                samples.append((seen - float(json.loads(event.payload)["chunk"])) * 1000)
            if event.event_type == "runner.exited":
                break
    return _figure("first_line_p50", samples, 20.0)


def _figure(name: str, samples: list[float], bar: float) -> Result:
    found = Samples.of(samples)
    facts: dict[str, Fact] = {"p99": found.p99, "n": len(samples)}
    return Figure(name=name, value=found.p50, unit="ms", bar=at_most(bar), facts=facts)
