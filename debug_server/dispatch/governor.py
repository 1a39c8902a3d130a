"""The dispatch part of the server: its configuration and schedules; surfaces add its routes and gRPC services."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from debug_server.dispatch.configuration import Configuration, LiveConfiguration
from debug_server.dispatch.dispatcher import Dispatcher, emit_due
from debug_server.dispatch.examples import create_examples
from debug_server.dispatch.issue_event import IssueEvent
from debug_server.dispatch.registry import RepoRegistry
from debug_server.dispatch.runners_file import Runner, Trigger
from debug_server.dispatch.stream import EventStream, StreamFilter
from debug_server.model import DueTime
from debug_server.service import LOCAL, Service

_LOG = logging.getLogger(__name__)
_CHECK_SECONDS = 2.0  # each event checks the files for changes; schedules must not wait for an event


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scheduled:
    """One schedule of a runner, for one repository."""

    runner: Runner
    repo: str
    trigger: Trigger


class Governor:
    """Starts the runners of many repositories for their events; the dispatch part (``Part``) of a server."""

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
        self.registry = RepoRegistry(configuration, service.repositories.check_folder)
        # Servers with the same folder share its schedules.
        self._group = f"dispatch:{configuration.folder.absolute()}:"
        self.make_routes: Callable[[], Sequence[Any]] = tuple
        self.make_services: Callable[[], Mapping[str, Any]] = dict

    def stream(self, stream_filter: StreamFilter) -> EventStream:
        """The stream for one watcher."""
        return EventStream(self.service, stream_filter)

    def routes(self) -> Sequence[Any]:
        """The routes of the HTTP surface."""
        return self.make_routes()

    def grpc_services(self) -> Mapping[str, Any]:
        """The services of the gRPC surface."""
        return self.make_services()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Create the examples, declare the schedules, and apply changes of the files, also on SIGHUP."""
        self.configuration.on_change(self._apply)  # first, so that no change is missed
        await asyncio.to_thread(lambda: self._apply(self.configuration.current()))
        watching = asyncio.create_task(self._check_files())
        self._reload_on_hangup()
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    def drain(self) -> None:
        """Nothing to do: ``emit`` refuses events once the service drains, and streams end."""

    async def drained(self) -> None:
        """Nothing to wait for."""

    def health(self) -> Mapping[str, Any]:
        """How much is configured, and why newer files are not used."""
        current = self.configuration.in_use  # not current(): a change would be applied in the event loop
        shown = {"runners": len(current.runners.runners), "repos": len(current.repos.repos)}
        return {"dispatch": {**shown, "configuration": self.configuration.problem or "ok"}}

    def readiness(self) -> tuple[str, Mapping[str, Any]]:
        """Always ok: if new files are invalid, the old ones stay in use."""
        return "ok", {}

    def liveness(self) -> tuple[str, Mapping[str, Any]]:
        """Always ok."""
        return "ok", {}

    def _apply(self, configuration: Configuration) -> None:
        for name in create_examples(self.service, configuration):
            _LOG.info("example_created", extra={"repo": name})
        scheduled = self._scheduled(configuration)
        rules = {name: item.trigger.rule for name, item in scheduled.items() if item.trigger.rule is not None}
        self.service.subject_runs.declare_schedules(LOCAL, self._group, rules, partial(self._emit_due, scheduled))

    def _scheduled(self, configuration: Configuration) -> dict[str, _Scheduled]:
        """Every schedule of every runner in every repository, by name."""
        return {
            f"{self._group}{runner.name}:{repo}:{index}": _Scheduled(runner=runner, repo=repo, trigger=trigger)
            for runner in configuration.runners.runners.values()
            for repo in (configuration.repos.repos if runner.repos is None else runner.repos)
            for index, trigger in enumerate(runner.triggers)
            if trigger.rule is not None
        }

    def _emit_due(self, scheduled: Mapping[str, _Scheduled], due: DueTime) -> None:
        """Emit the event of a schedule; called in the scheduler's thread."""
        item = scheduled[due.schedule]
        skill = item.trigger.skill
        task = f"schedule-{item.runner.name}-{skill}-{due.moment:%Y%m%dT%H%MZ}"
        moment = due.moment.isoformat().replace("+00:00", "Z")  # when it was due, also if that was missed
        event = IssueEvent(task_id=task, event_type=skill, repo_name=item.repo, field="schedule", timestamp=moment)
        emit_due(self.dispatcher, event, due)

    def _reload_on_hangup(self) -> None:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, self.configuration.reload))

    async def _check_files(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                await asyncio.to_thread(self.configuration.current)
            except Exception:  # noqa: BLE001 - a failure must not end the task: later changes would not be noticed
                _LOG.error("dispatch_check_failed", exc_info=True)
