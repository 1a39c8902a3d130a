"""Turns events into runs: checks an event, routes it, and queues its runs or records why it did not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from debug_server.dispatch.configuration import LiveConfiguration
from debug_server.dispatch.issue_event import IssueEvent, checked
from debug_server.dispatch.programs import Program, call_program, find_program
from debug_server.dispatch.routing import NoRoute, Route, routes
from debug_server.dispatch.runs import SUBJECT, RunPlace, queued_run, record, record_of_route
from debug_server.errors import ConfigurationError, ConflictError, InvalidInputError, NotFoundError
from debug_server.model import Command, DueTime, NewEvent, QueuedRun
from debug_server.service import LOCAL, Service

_LOG = logging.getLogger(__name__)
SKIPPED, REFUSED = "dispatch.skipped", "dispatch.refused"  # kinds of stored events

Step = QueuedRun | NewEvent
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one route."""

    runner: str
    skill: str
    executor: str | None
    queued: bool
    refused: bool = False  # not queued because the queue was full; an error in the stream
    reason: str = ""  # why it was not queued
    command_id: int | None = None

    @property
    def status(self) -> str:
        """``queued``, ``error`` or ``skipped``, as in the stream."""
        return "queued" if self.queued else "error" if self.refused else "skipped"

    @property
    def line(self) -> str:
        """The line that commands print."""
        return f"[runner] {self.runner} {self.status}" + ("" if self.queued else f": {self.reason}")


class Dispatcher:
    """Routes events by the current configuration and queues their runs."""

    def __init__(self, service: Service, configuration: LiveConfiguration, *, shell: str = "/bin/bash") -> None:
        self._service = service
        self._configuration = configuration
        self._shell = shell

    async def emit(self, event: IssueEvent, *, due: DueTime | None = None) -> list[Outcome]:
        """Queue the runs of an event, in one commit; InvalidInputError or NotFoundError for an invalid event.

        With ``due`` the commit also takes that time of a schedule; if another process took it, nothing is queued.
        """
        event = await _in_thread_if_large(event, partial(checked, event))
        configuration = await self._configuration.current_async()
        repo = configuration.repos.repos.get(event.repo_name)
        if repo is None:
            raise NotFoundError(f"repository {event.repo_name!r} is not in {configuration.repos.path}: add it there")
        path = configuration.repos.path_of(repo)
        place = RunPlace(repo=repo, path=path, root=configuration.root, trusted_uids=configuration.trusted_uids)
        trigger = "event" if due is None else "schedule"
        found = await _in_thread_if_large(event, partial(routes, event, configuration.runners, trigger=trigger))
        steps = [await self._step(event, route, place, first=index == 0) for index, route in enumerate(found)]
        added = await self._service.subject_runs.add(LOCAL, steps, due)
        if added is None:
            return []
        return [_outcome(event, route, item) for route, item in zip(found, added, strict=True)]

    async def _step(self, event: IssueEvent, route: Route | NoRoute, place: RunPlace, *, first: bool) -> Step:
        """The run of a route, or the event that says why there is none."""
        if isinstance(route, NoRoute):
            return _not_queued(SKIPPED, record(event, route.runner, route.skill, None, first=first), route.reason)
        program = _prepare(route, place, self._shell)
        if isinstance(program, str):
            return _not_queued(SKIPPED, record_of_route(event, route, first=first), program)
        try:
            place = await self._with_repository(route, place)
        except (InvalidInputError, ConflictError) as error:
            reason = f"{place.repo.name} cannot be used: {error}"
            return _not_queued(SKIPPED, record_of_route(event, route, first=first), reason)
        run = await _in_thread_if_large(event, partial(queued_run, event, route, place, program, first=first))
        return replace(run, event_if_full=partial(_not_queued, REFUSED, record_of_route(event, route, first=first)))

    async def _with_repository(self, route: Route, place: RunPlace) -> RunPlace:
        """Register the repository if the runner works in a leased workspace.

        InvalidInputError for another user's folder: runners would work in it as the server's user.
        """
        if place.path.is_dir():
            self._service.repositories.check_folder(place.path)
        if route.runner.workspace == "root":
            return place
        return replace(
            place, repository_id=await self._service.repositories.register_directory(LOCAL, place.path, place.repo.name)
        )


async def _in_thread_if_large(event: IssueEvent, work: Callable[[], T]) -> T:
    """Run ``work`` in a thread if the event is large: many thousand paths would block the event loop."""
    return await asyncio.to_thread(work) if event.large else work()


def _not_queued(kind: str, fields: Mapping[str, Any], reason: str) -> NewEvent:
    return NewEvent(kind=kind, subject=SUBJECT, data={**fields, "reason": reason})


def _outcome(event: IssueEvent, route: Route | NoRoute, added: Command | NewEvent) -> Outcome:
    runner, executor = (
        (route.runner, None) if isinstance(route, NoRoute) else (route.runner.name, route.runner.executor)
    )
    fields = {"runner": runner, "skill": route.skill, "task": event.task_id, "repo": event.repo_name}
    if isinstance(added, NewEvent):
        reason, refused = added.data["reason"], added.kind == REFUSED
        _LOG.warning("runner_refused" if refused else "runner_skipped", extra={**fields, "reason": reason})
        return Outcome(
            runner=runner, skill=route.skill, executor=executor, queued=False, refused=refused, reason=reason
        )
    _LOG.info("runner_queued", extra={**fields, "executor": executor, "command_id": added.id})
    return Outcome(runner=runner, skill=route.skill, executor=executor, queued=True, command_id=added.id)


def _prepare(route: Route, place: RunPlace, shell: str) -> Program | str:
    """The program to start, or why there is none."""
    if not place.path.is_dir():
        return f"the local path {place.repo.local_path} of {place.repo.name} is missing"
    if route.runner.executor == "grpc":
        return call_program()
    try:
        found = find_program(route.runner, place.path, place.root, shell, trusted_uids=place.trusted_uids)
    except ConfigurationError as error:
        return str(error)
    if found is None:
        what = "cmd" if route.runner.executor == "bash" else "module"
        return f"{what} {route.runner.program} is not in {place.repo.name} and not in runners/"
    return found


def emit_due(dispatcher: Dispatcher, event: IssueEvent, due: DueTime) -> list[Outcome]:
    """``emit`` for the scheduler's thread, which has no event loop."""
    return asyncio.run(dispatcher.emit(event, due=due))
