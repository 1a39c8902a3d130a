"""RunnerManager: the routing as a plain object, for scripts that have no server at hand."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import yaml

from debug_server.config import load_runner
from debug_server.disk import check_trusted, owners_of
from debug_server.dispatch.configuration import LiveConfiguration
from debug_server.dispatch.dispatcher import Dispatcher, Outcome
from debug_server.dispatch.document import read_text
from debug_server.dispatch.folder import RUNNERS, configuration_folder
from debug_server.dispatch.issue_event import IssueEvent
from debug_server.dispatch.routing import UNKNOWN
from debug_server.engine import LocalEngine, Sessions
from debug_server.errors import InvalidInputError
from debug_server.runner.settings import RunnerSettings
from debug_server.runner.worker import WorkerSupervisor
from debug_server.service import Service
from debug_server.store import default_url, open_store


class EventLike(Protocol):
    """What ``dispatch`` needs of an event; ``field``, ``timestamp`` and ``paths`` are used when they are there."""

    task_id: str
    event_type: str
    repo_name: str
    payload: str


class RunnerManager:
    """Routes events and queues their runs in the store; whichever server works on that store runs them.

    Without a service it queues by itself: the run begins at once if a server is there, or when the next one starts.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        service: Service | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if folder is None:
            found = configuration_folder()
            self._configuration = LiveConfiguration(found.path, owners=found.owners)
        else:
            self._configuration = LiveConfiguration(folder, owners=owners_of(folder))
        self._service = service
        self._say = say or _print

    def load(self) -> dict[str, Any]:
        """Read the files anew and return runners.yml as it stands; ConfigurationError says what is wrong with it."""
        fresh = LiveConfiguration(self._configuration.folder, owners=self._configuration.owners)
        self._configuration = fresh
        found: dict[str, Any] = yaml.safe_load(read_text(fresh.folder / RUNNERS, fresh.owners))
        return found

    def get_runner_for_skill(self, skill_id: str) -> str:
        """The runner's name, or ``unknown``."""
        runner = self._configuration.current().runners.runner_for(skill_id)
        return UNKNOWN if runner is None else runner.name

    def list_runners(self) -> list[str]:
        """Their names, sorted."""
        return sorted(self._configuration.current().runners.runners)

    def dispatch(self, event: EventLike | Mapping[str, Any]) -> dict[str, Any]:
        """Queue what the event asks for; the answer is of its most urgent runner."""
        wanted = _wanted(event)
        with ThreadPoolExecutor(1) as thread:  # the caller may have a loop of its own
            outcomes = thread.submit(self._emit, wanted).result()
        for outcome in outcomes:
            self._say(
                f"[runner] {outcome.word} runner={outcome.runner} skill={outcome.skill} task={wanted.task_id} "
                f"repo={wanted.repo_name} executor={outcome.executor}"
            )
        first = outcomes[0]
        return {
            "queued": first.queued,
            "runner": first.runner,
            "skill": first.skill,
            "task_id": wanted.task_id,
            "executor": first.executor,
        }

    def _emit(self, event: IssueEvent) -> list[Outcome]:
        if self._service is not None:
            return asyncio.run(Dispatcher(self._service, self._configuration).emit(event))
        toml = self._configuration.folder / "runner.toml"
        if toml.is_file():
            check_trusted(toml, self._configuration.owners)
        placed = load_runner(toml if toml.is_file() else None, cwd=self._configuration.folder.absolute().parent)
        settings = RunnerSettings.from_config(placed.loaded.value, owners=placed.place.owners)
        with open_store(default_url(os.environ, placed.data), data_folder=placed.data) as store:
            supervisor = WorkerSupervisor.from_settings(metadata_store=store, settings=settings)
            sessions = Sessions(store=store, paths=settings.paths, process=lambda: supervisor.owner)
            engine = LocalEngine(store=store, supervisor=supervisor, sessions=sessions)  # never started: it only queues
            service = Service(
                store=store, engine=engine, sessions=sessions, paths=settings.paths, shell=settings.default_shell
            )
            try:
                dispatcher = Dispatcher(service, self._configuration, shell=settings.default_shell)
                return asyncio.run(dispatcher.emit(event))
            finally:
                service.close()


def _wanted(event: EventLike | Mapping[str, Any]) -> IssueEvent:
    """The event out of an object or a mapping; InvalidInputError names what is missing, unknown or no text."""
    names = [field.name for field in dataclasses.fields(IssueEvent)]
    if isinstance(event, Mapping):
        if unknown := [str(name) for name in event if name not in names]:
            raise InvalidInputError(f"an event has no {', '.join(unknown)}: known are {', '.join(names)}")
        found = dict(event)
    else:
        found = {name: getattr(event, name) for name in names if hasattr(event, name)}
    for name in ("task_id", "event_type", "repo_name"):
        if name not in found:
            raise InvalidInputError(f"the event has no {name}: give task_id, event_type and repo_name")
    paths = found.pop("paths", ())
    if not isinstance(paths, Sequence) or isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
        raise InvalidInputError("paths of the event must be a list of texts")
    for name, value in found.items():
        if not isinstance(value, str):
            raise InvalidInputError(f"{name} of the event must be a text, not {type(value).__name__}")
    return IssueEvent(**found, paths=tuple(paths))


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
