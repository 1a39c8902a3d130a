"""Events become runs: each is checked, routed, and queued or told why not, before its emitter has its answer."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from debug_server.dispatch.configuration import Configuration, LiveConfiguration
from debug_server.dispatch.issue_event import IssueEvent, checked
from debug_server.dispatch.programs import Program, call_program, find_program, runner_folders
from debug_server.dispatch.repos_file import Repo
from debug_server.dispatch.routing import NoRoute, Route, routes
from debug_server.dispatch.runs import SUBJECT, Place, order_key, queued_run, record
from debug_server.errors import NotFoundError, QueueFullError
from debug_server.service import LOCAL, Service

_LOG = logging.getLogger(__name__)
SKIPPED, REFUSED = "dispatch.skipped", "dispatch.refused"  # kinds of our own events


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one route."""

    runner: str
    skill: str
    executor: str | None
    queued: bool
    reason: str = ""  # why it was not queued
    command_id: int | None = None

    @property
    def sentence(self) -> str:
        """As it is printed."""
        return f"[runner] {self.runner} queued" if self.queued else f"[runner] {self.runner} skipped: {self.reason}"


class Dispatcher:
    """Routes events by the configuration in force and queues what they ask for."""

    def __init__(self, service: Service, configuration: LiveConfiguration, *, shell: str = "/bin/bash") -> None:
        self._service = service
        self._configuration = configuration
        self._shell = shell

    async def emit(self, event: IssueEvent, *, scheduled: bool = False) -> list[Outcome]:
        """Act on an event; InvalidInputError or NotFoundError when it makes no sense.

        With ``scheduled`` nothing is done when the task was acted on before, by whichever process.
        """
        event = checked(event)
        configuration = await self._configuration.current_async()
        repo = configuration.repos.repos.get(event.repo_name)
        if repo is None:
            raise NotFoundError(f"repository {event.repo_name!r} is not in {configuration.repos.path}: add it there")
        if scheduled and await self._service.count_ordered(LOCAL, order_key(event)):
            return []
        found = routes(event, configuration.runners, trigger="schedule" if scheduled else "event")
        return [
            await self._act(event, route, repo, configuration, first=index == 0) for index, route in enumerate(found)
        ]

    async def _act(
        self, event: IssueEvent, route: Route | NoRoute, repo: Repo, configuration: Configuration, *, first: bool
    ) -> Outcome:
        if isinstance(route, NoRoute):
            return await self._skip(event, route.runner, route.skill, None, route.reason, first=first)
        runner = route.runner
        place = Place(repo=repo, path=configuration.repos.place(repo), root=configuration.root)
        found = _prepare(route, place, self._shell)
        if isinstance(found, str):
            return await self._skip(event, runner.name, route.skill, runner.executor, found, first=first)
        try:
            place = await self._with_repository(route, place)
            command = await self._service.queue_run(LOCAL, queued_run(event, route, place, found, first=first))
        except QueueFullError as error:
            return await self._skip(
                event, runner.name, route.skill, runner.executor, str(error), first=first, kind=REFUSED
            )
        fields = {"runner": runner.name, "skill": route.skill, "task": event.task_id, "repo": event.repo_name}
        _LOG.info("runner_queued", extra={**fields, "executor": runner.executor, "command_id": command.id})
        return Outcome(
            runner=runner.name, skill=route.skill, executor=runner.executor, queued=True, command_id=command.id
        )

    async def _with_repository(self, route: Route, place: Place) -> Place:
        """A leased workspace needs the repository to be registered, under the name that it has with us."""
        if route.runner.workspace == "root":
            return place
        number = await self._service.register_directory(LOCAL, place.path, place.repo.name)
        return Place(repo=place.repo, path=place.path, root=place.root, repository_id=number)

    async def _skip(
        self,
        event: IssueEvent,
        runner: str,
        skill: str,
        executor: str | None,
        reason: str,
        *,
        first: bool,
        kind: str = SKIPPED,
    ) -> Outcome:
        _LOG.warning("runner_skipped", extra={"runner": runner, "task": event.task_id, "reason": reason})
        data: dict[str, Any] = {**record(event, runner, skill, executor, first=first), "reason": reason}
        await self._service.append_event(LOCAL, kind, SUBJECT, data)
        return Outcome(runner=runner, skill=skill, executor=executor, queued=False, reason=reason)


def _prepare(route: Route, place: Place, shell: str) -> Program | str:
    """What to start, or why not."""
    if not place.path.is_dir():
        return f"the local path {place.repo.local_path} of {place.repo.name} is missing"
    if route.runner.executor == "grpc":
        return call_program()
    found = find_program(route.runner, place.path, runner_folders(place.root), shell)
    if found is None:
        what = "cmd" if route.runner.executor == "bash" else "module"
        return f"{what} {route.runner.program} is neither in {place.repo.name} nor in runners/"
    return found


def emit_now(dispatcher: Dispatcher, event: IssueEvent, *, scheduled: bool = False) -> list[Outcome]:
    """``emit`` for callers in threads without a loop of their own."""
    return asyncio.run(dispatcher.emit(event, scheduled=scheduled))
