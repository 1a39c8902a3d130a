"""The command line: measures the subjects, prints a table and one JSON document."""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    cancel,
    dispatch,
    egress,
    environments,
    follow,
    gateway,
    machine,
    memory,
    parallel,
    peers,
    pipeline,
    report,
    service,
    size,
    start,
    tasks,
    throughput,
    workers,
    worktrees,
)
from benchmarks.figures import FAILED, Result, Size, Skipped
from debug_server.errors import DebugServerError

SUBJECTS: dict[str, Callable[[Size], list[Result]]] = {
    "start": start.measure,
    "throughput": throughput.measure,
    "egress": egress.measure,
    "follow": follow.measure,
    "parallel": parallel.measure,
    "cancel": cancel.measure,
    "memory": memory.measure,
    "worktrees": worktrees.measure,
    "environments": environments.measure,
    "pipeline": pipeline.measure,
    "tasks": tasks.measure,
    "service": service.measure,
    "size": size.measure,
    "peers": peers.measure,
    "workers": workers.measure,
    "dispatch": dispatch.measure,
    "gateway": gateway.measure,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what ``argv`` names; status 1 when a subject could not be measured."""
    options = _options(argv)
    logging.getLogger("debug_server").addHandler(logging.NullHandler())  # a worker's deaths are what is measured
    size = Size.QUICK if options.quick else Size.FULL
    facts = {**machine.describe(), "size": size.value, "load_at_start": machine.load()}
    _say(" ".join(f"{key}={value}" for key, value in facts.items()))
    _say(machine.warning("start", facts["load_at_start"]))
    _say(report.HEADING)
    measured: dict[str, list[Result]] = {}
    broken = False
    for name in options.names or SUBJECTS:
        try:
            measured[name] = SUBJECTS[name](size)
        except (DebugServerError, OSError, subprocess.SubprocessError) as error:
            broken = True
            measured[name] = [Skipped(name=FAILED, reason=f"{type(error).__name__}: {error}")]
        _say("\n".join(report.rows(name, measured[name])))
    facts["load_at_end"] = machine.load()
    _say(f"load_at_end={facts['load_at_end']}")
    _say(machine.warning("end", facts["load_at_end"]))
    _say(report.verdict(measured))
    _write(report.document(facts, measured), options.json)
    return int(broken)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(SUBJECTS)}; all when none is given")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON document here instead of to stdout")
    parser.add_argument("--quick", action="store_true", help="small amounts: to try it out, not to judge by")
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.names) - set(SUBJECTS)):
        parser.error(f"there is no benchmark {unknown[0]!r}: choose from {', '.join(SUBJECTS)}")
    return options


def _say(line: str | None) -> None:
    if line is not None:
        print(line, flush=True)


def _write(text: str, path: Path | None) -> None:
    if path is None:
        _say(text)
    else:
        path.write_text(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
