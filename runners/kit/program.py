"""Runs a program: reads the event, prints lines, exits with 0, or with 1 and a reason on stderr."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator

from runners.kit.errors import JobError
from runners.kit.event import Event, read_event
from runners.kit.text import single_line
from runners.kit.tree import Tree

Job = Callable[[Event, Tree], Iterator[str]]


def run(name: str, jobs: dict[str, Job], *, on_push: Job | None = None) -> int:
    """Run the job of the event's skill in the current folder, or ``on_push`` for a push; returns the exit status."""
    # For any locale: a name that it cannot encode must not end the program.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        event = read_event(sys.stdin.buffer)
        job = _job(event, jobs, on_push)
        with Tree() as tree:
            for line in job(event, tree):
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    except JobError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{name}: {single_line(str(error.filename or 'the repository'))}: {error.strerror}\n")
        return 1
    return 0


def _job(event: Event, jobs: dict[str, Job], on_push: Job | None) -> Job:
    if on_push and event.settings.get("trigger") in ("push", "pr"):
        return on_push
    if event.skill not in jobs:
        raise JobError(f"skill {single_line(event.skill, 60)!r} is not one of {', '.join(jobs)}")
    return jobs[event.skill]
