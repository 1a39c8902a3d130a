"""The run of a route: its program, environment, limits, and what the stream needs to know about it."""

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

SUBJECT = "dispatch"  # of the events of these commands, and the key of the event and route in their metadata
_CALL_SECONDS = 10.0  # added to a grpc runner's timeout, for its program to start and to print
_LONGEST_STORED_PAYLOAD = 1 << 16
_PROBE_VARIABLES = ("PROBE_HOST", "PROBE_GRPC_PORT")
_CALL_VARIABLES = ("DEBUG_SERVER_UID",)  # the user who may own a target on this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """The repository that a run works in, and where it is."""

    repo: Repo
    path: Path
    root: Path  # the folder that holds config/
    trusted_uids: frozenset[int]  # user ids whose runner programs are trusted
    repository_id: int | None = None  # for a leased workspace; None: run in ``path``


def queued_run(event: IssueEvent, route: Route, place: RunPlace, program: Program, *, first: bool) -> QueuedRun:
    """The run of one route."""
    runner = route.runner
    extra = _CALL_SECONDS if runner.executor == "grpc" else 0.0
    spec = CommandSpec(
        program.argv,
        {**_variables(event, route, place), **program.env},
        log_name=runner.name,
        timeout=runner.timeout + extra,
        stdin_text=json.dumps(stdin_document(event, route, place.repo)),
    )
    leased = place.repository_id is not None
    return QueuedRun(
        spec=spec,
        session_plan=SessionPlan(commit=place.repo.branch) if leased else SessionPlan(directory=str(place.path)),
        repository_id=place.repository_id,
        priority=PRIORITIES[runner.priority],
        queue_key=f"runner:{runner.name}",
        key_limit=runner.concurrency,
        key_max_pending=runner.queue,
        order_key=order_key(event),
        requested_by=f"dispatch {runner.name}",
        subject=SUBJECT,
        metadata={SUBJECT: record_of_route(event, route, first=first)},
    )


def order_key(event: IssueEvent) -> str:
    """The key of runs that run in order: those of one task in one repository."""
    return f"task:{event.repo_name}/{event.task_id}"


def record_of_route(event: IssueEvent, route: Route, *, first: bool) -> dict[str, Any]:
    """What is stored about an event and its route."""
    return record(event, route.runner.name, route.skill, route.runner.executor, first=first)


def record(event: IssueEvent, runner: str, skill: str, executor: str | None, *, first: bool) -> dict[str, Any]:
    """What is stored about an event and its runner; the stream shows the event itself with the ``first`` of them."""
    payload = event.payload
    if len(payload) > _LONGEST_STORED_PAYLOAD:
        payload = json.dumps(
            {"truncated": True, "characters": len(payload), "begins": payload[: _LONGEST_STORED_PAYLOAD // 2]}
        )
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


def stdin_document(event: IssueEvent, route: Route, repo: Repo) -> dict[str, Any]:
    """The event as a runner program reads it from stdin."""
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


def _variables(event: IssueEvent, route: Route, place: RunPlace) -> Mapping[str, str]:
    passed = _PROBE_VARIABLES + (_CALL_VARIABLES if route.runner.executor == "grpc" else ())
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
        **{name: os.environ[name] for name in passed if name in os.environ},
    }
