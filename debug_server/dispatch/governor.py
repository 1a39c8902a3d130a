"""The dispatch part of the server: its configuration, its schedules, its life; surfaces bring routes and services."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from debug_server.dispatch.configuration import Configuration, LiveConfiguration
from debug_server.dispatch.dispatcher import Dispatcher, emit_due
from debug_server.dispatch.examples import make_examples
from debug_server.dispatch.issue_event import IssueEvent
from debug_server.dispatch.registry import RepoRegistry
from debug_server.dispatch.runners_file import Runner
from debug_server.dispatch.stream import EventStream, Wish
from debug_server.engine.schedules import Planned
from debug_server.model import DueTime
from debug_server.service import LOCAL, Service

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 2.0  # the files are looked at with every event; schedules must not wait for one


class Governor:
    """Routes events of many repositories to their runners; a ``Part`` of the server."""

    name = "dispatch"

    def __init__(
        self,
        service: Service,
        configuration: LiveConfiguration,
        *,
        shell: str = "/bin/bash",
        hook_secret: str | None = None,
    ) -> None:
        self.service = service
        self.configuration = configuration
        self.hook_secret = hook_secret
        self.dispatcher = Dispatcher(service, configuration, shell=shell)
        self.registry = RepoRegistry(configuration, service.trust)
        # Servers of one folder have its schedules in common; those of another folder are none of their business.
        self._group = f"dispatch:{configuration.folder.absolute()}:"
        self.bring_routes: Callable[[], Sequence[Any]] = tuple
        self.bring_services: Callable[[], Mapping[str, Any]] = dict

    def stream(self, wish: Wish) -> EventStream:
        """One watcher's view."""
        return EventStream(self.service, wish)

    def routes(self) -> Sequence[Any]:
        """The HTTP surface's."""
        return self.bring_routes()

    def grpc_services(self) -> Mapping[str, Any]:
        """The gRPC surface's."""
        return self.bring_services()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Make the examples, keep the schedules, and follow the files and SIGHUP."""
        self.configuration.on_change(self._take_up)  # first: a change during the beginning is not missed
        await asyncio.to_thread(self._begin)
        watching = asyncio.create_task(self._watch())
        self._listen_to_hangup()
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    def drain(self) -> None:
        """Emit refuses by itself once the service drains; streams end with it."""

    async def drained(self) -> None:
        """Nothing to wait for."""

    def health(self) -> Mapping[str, Any]:
        """What is in force, and why a newer file is not."""
        current = self.configuration.in_force  # no look at the files: a change would be taken up in the server's loop
        shown = {"runners": len(current.runners.runners), "repos": len(current.repos.repos)}
        return {"dispatch": {**shown, "configuration": self.configuration.problem or "ok"}}

    def readiness(self) -> tuple[str, Mapping[str, Any]]:
        """Always: a refused file leaves the one before in force."""
        return "ok", {}

    def liveness(self) -> tuple[str, Mapping[str, Any]]:
        """Always."""
        return "ok", {}

    def _begin(self) -> None:
        self._take_up(self.configuration.current())

    def _take_up(self, configuration: Configuration) -> None:
        for name in make_examples(configuration):
            _LOG.info("example_made", extra={"repo": name})
        self.service.own_runs.declare_schedules(LOCAL, self._group, self._planned(configuration))

    def _planned(self, configuration: Configuration) -> dict[str, Planned]:
        found: dict[str, Planned] = {}
        for runner in configuration.runners.runners.values():
            for repo in configuration.repos.repos if runner.repos is None else runner.repos:
                found.update(self._planned_for(runner, repo))
        return found

    def _planned_for(self, runner: Runner, repo: str) -> dict[str, Planned]:
        return {
            f"{self._group}{runner.name}:{repo}:{index}": Planned(
                rule=trigger.rule, act=partial(self._due, runner.name, repo, trigger.skill)
            )
            for index, trigger in enumerate(runner.triggers)
            if trigger.rule is not None
        }

    def _due(self, runner: str, repo: str, skill: str, due: DueTime) -> None:
        """In the scheduler's thread."""
        task = f"schedule-{runner}-{skill}-{due.moment:%Y%m%dT%H%MZ}"
        moment = due.moment.isoformat().replace("+00:00", "Z")  # what is caught up late belongs to its own week
        event = IssueEvent(task_id=task, event_type=skill, repo_name=repo, field="schedule", timestamp=moment)
        emit_due(self.dispatcher, event, due)

    def _listen_to_hangup(self) -> None:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, self.configuration.reload))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await asyncio.to_thread(self.configuration.current)
            except Exception:  # noqa: BLE001 - the task's boundary: without it no later change would be noticed
                _LOG.error("dispatch_look_failed", exc_info=True)
