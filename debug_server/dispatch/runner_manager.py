"""RunnerManager: routing and queueing of events for scripts, without a server."""

from __future__ import annotations

import asyncio
import dataclasses
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
from debug_server.dispatch.folder import RUNNERS, configuration_folder
from debug_server.dispatch.issue_event import IssueEvent
from debug_server.dispatch.routing import UNKNOWN
from debug_server.dispatch.yaml_file import read_text
from debug_server.errors import InvalidInputError
from debug_server.service import Service
from debug_server.service.offline import offline_service


class EventLike(Protocol):
    """The attributes that ``dispatch`` needs; it also uses ``field``, ``timestamp`` and ``paths`` if they exist."""

    task_id: str
    event_type: str
    repo_name: str
    payload: str


class RunnerManager:
    """Routes events and queues their runs in the store; a server on that store runs them, now or when it starts."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        service: Service | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if folder is None:
            found = configuration_folder()
            self._configuration = LiveConfiguration(found.path, trusted_uids=found.trusted_uids)
        else:
            self._configuration = LiveConfiguration(folder, trusted_uids=owners_of(folder))
        self._service = service
        self._say = say or _print

    def load(self) -> dict[str, Any]:
        """Reread the files and return the content of runners.yml; ConfigurationError says what is wrong."""
        fresh = LiveConfiguration(self._configuration.folder, trusted_uids=self._configuration.trusted_uids)
        self._configuration = fresh
        found: dict[str, Any] = yaml.safe_load(read_text(fresh.folder / RUNNERS, fresh.trusted_uids))
        return found

    def get_runner_for_skill(self, skill_id: str) -> str:
        """The runner's name, or ``unknown``."""
        runner = self._configuration.current().runners.runner_for(skill_id)
        return UNKNOWN if runner is None else runner.name

    def list_runners(self) -> list[str]:
        """The names of the runners, sorted."""
        return sorted(self._configuration.current().runners.runners)

    def dispatch(self, event: EventLike | Mapping[str, Any]) -> dict[str, Any]:
        """Queue the runs of an event; the answer describes its runner with the highest priority."""
        checked = _event_from(event)
        with ThreadPoolExecutor(1) as thread:  # the caller may run an event loop
            outcomes = thread.submit(self._emit, checked).result()
        for outcome in outcomes:
            self._say(
                f"[runner] {outcome.status} runner={outcome.runner} skill={outcome.skill} task={checked.task_id} "
                f"repo={checked.repo_name} executor={outcome.executor}"
            )
        first = outcomes[0]
        return {
            "queued": first.queued,
            "runner": first.runner,
            "skill": first.skill,
            "task_id": checked.task_id,
            "executor": first.executor,
        }

    def _emit(self, event: IssueEvent) -> list[Outcome]:
        if self._service is not None:
            return asyncio.run(Dispatcher(self._service, self._configuration).emit(event))
        toml = self._configuration.folder / "runner.toml"
        if toml.is_file():
            check_trusted(toml, self._configuration.trusted_uids)
        placed = load_runner(toml if toml.is_file() else None, cwd=self._configuration.folder.absolute().parent)
        with offline_service(placed) as service:
            shell = placed.loaded.value.runner.default_shell
            return asyncio.run(Dispatcher(service, self._configuration, shell=shell).emit(event))


def _event_from(event: EventLike | Mapping[str, Any]) -> IssueEvent:
    """The event from an object or a mapping; InvalidInputError names the wrong attribute."""
    names = [field.name for field in dataclasses.fields(IssueEvent)]
    if isinstance(event, Mapping):
        if unknown := [str(name) for name in event if name not in names]:
            raise InvalidInputError(f"unknown event fields {', '.join(unknown)}: use {', '.join(names)}")
        found = dict(event)
    else:
        found = {name: getattr(event, name) for name in names if hasattr(event, name)}
    for name in ("task_id", "event_type", "repo_name"):
        if name not in found:
            raise InvalidInputError(f"the event has no {name}: give task_id, event_type and repo_name")
    paths = found.pop("paths", ())
    if not isinstance(paths, Sequence) or isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
        raise InvalidInputError("paths of the event must be a list of strings")
    for name, value in found.items():
        if not isinstance(value, str):
            raise InvalidInputError(f"{name} of the event must be a string, not {type(value).__name__}")
    return IssueEvent(**found, paths=tuple(paths))


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
