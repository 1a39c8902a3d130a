"""From a route to a run for the queue: program, surroundings, bounds, and what the stream will tell of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.dispatch.issue_event import IssueEvent
from debug_server.dispatch.programs import Program
from debug_server.dispatch.repos_file import Repo
from debug_server.dispatch.routing import Route
from debug_server.dispatch.runners_file import PRIORITIES
from debug_server.model import CommandSpec, QueuedRun, SessionPlan

SUBJECT = "dispatch"  # of the events of our commands, and the key of what we keep in their metadata
_CALL_SECONDS = 10.0  # for a grpc runner's program to start and to tell, beside the call's own deadline
_INLINE_PAYLOAD = 1 << 16
_PROBE_VARIABLES = ("PROBE_HOST", "PROBE_GRPC_PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run happens."""

    repo: Repo
    path: Path
    root: Path  # the folder that holds config/
    owners: frozenset[int]  # whose runner programs are trusted
    repository_id: int | None = None  # for a leased workspace


def queued_run(event: IssueEvent, route: Route, place: Place, program: Program, *, first: bool) -> QueuedRun:
    """The run of one route."""
    runner = route.runner
    extra = _CALL_SECONDS if runner.executor == "grpc" else 0.0
    spec = CommandSpec(
        program.argv,
        {**_variables(event, route, place), **program.env},
        log_name=runner.name,
        timeout=runner.timeout + extra,
        stdin_text=json.dumps(document(event, route, place.repo)),
    )
    leased = place.repository_id is not None
    return QueuedRun(
        spec=spec,
        place=SessionPlan(commit=place.repo.branch) if leased else SessionPlan(directory=str(place.path)),
        repository_id=place.repository_id,
        priority=PRIORITIES[runner.priority],
        queue_key=f"runner:{runner.name}",
        key_limit=runner.concurrency,
        key_bound=runner.queue,
        order_key=order_key(event),
        requested_by=f"dispatch {runner.name}",
        subject=SUBJECT,
        metadata={SUBJECT: record_of_route(event, route, first=first)},
    )


def order_key(event: IssueEvent) -> str:
    """Events of one task in one repository follow one another."""
    return f"task:{event.repo_name}/{event.task_id}"


def record_of_route(event: IssueEvent, route: Route, *, first: bool) -> dict[str, Any]:
    """What is kept of an event and the route that it takes."""
    return record(event, route.runner.name, route.skill, route.runner.executor, first=first)


def record(event: IssueEvent, runner: str, skill: str, executor: str | None, *, first: bool) -> dict[str, Any]:
    """What is kept of an event and its route; ``first`` of an event's routes tells the event itself."""
    payload = event.payload
    if len(payload) > _INLINE_PAYLOAD:
        payload = json.dumps({"truncated": True, "characters": len(payload), "begins": payload[: _INLINE_PAYLOAD // 2]})
    return {
        "task_id": event.task_id,
        "repo_name": event.repo_name,
        "event_type": event.event_type,
        "field": event.field,
        "payload": payload,
        "timestamp": event.timestamp,
        "runner": runner,
        "skill": skill,
        "executor": executor,
        "first": first,
    }


def document(event: IssueEvent, route: Route, repo: Repo) -> dict[str, Any]:
    """The whole event, as a program reads it on its stdin."""
    runner = route.runner
    call = {"target": runner.program, "rpc": runner.rpc, "timeout": runner.timeout} if runner.rpc else {}
    return {
        "task_id": event.task_id,
        "repo_name": event.repo_name,
        "event_type": event.event_type,
        "field": event.field,
        "payload": event.payload,
        "timestamp": event.timestamp,
        "runner": runner.name,
        "skill": route.skill,
        "trigger": route.trigger,
        "branch": repo.branch,
        "gitignore_profile": repo.gitignore_profile,
        "paths": list(event.paths),
        "scan_patterns": list(runner.scan_patterns),
        **call,
    }


def _variables(event: IssueEvent, route: Route, place: Place) -> Mapping[str, str]:
    return {
        "DISPATCH_TASK_ID": event.task_id,
        "DISPATCH_EVENT_TYPE": event.event_type,
        "DISPATCH_REPO": event.repo_name,
        "DISPATCH_FIELD": event.field,
        "DISPATCH_TIMESTAMP": event.timestamp,
        "DISPATCH_RUNNER": route.runner.name,
        "DISPATCH_SKILL": route.skill,
        "DISPATCH_TRIGGER": route.trigger,
        "DISPATCH_ROOT": str(place.root),
        **{name: os.environ[name] for name in _PROBE_VARIABLES if name in os.environ},
    }
