"""How a program starts and ends: an event in, lines out, status 0 or a reason on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from runners.kit.event import Event, read_event
from runners.kit.refusal import Refusal
from runners.kit.tree import Tree
from runners.kit.words import single_line

Job = Callable[[Event, Tree], Iterator[str]]


def run(name: str, jobs: dict[str, Job], default: str | None = None) -> int:
    """Do the job of the event's skill in the current folder; ``default`` is for events of other skills, such as push."""
    try:
        event = read_event(sys.stdin.buffer)
        job = jobs.get(event.skill) or (jobs[default] if default else None)
        if job is None:
            raise Refusal(f"skill {single_line(event.skill, 60)!r} is not one of {', '.join(jobs)}")
        with Tree() as tree:
            for line in job(event, tree):
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    except Refusal as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{name}: {error.filename or 'the repository'}: {error.strerror}\n")
        return 1
    return 0
