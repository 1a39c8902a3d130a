"""Builds the parts of one machine from the settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from debug_server.config import Loaded, Place, find_place, load, load_runner
from debug_server.disk import check_trusted
from debug_server.engine.foreground import ForegroundEngine
from debug_server.engine.sessions import Sessions
from debug_server.runner.settings import RunnerSettings
from debug_server.runner.worker import WorkerSupervisor
from debug_server.service.foreground import ForegroundRuns
from debug_server.store import MetadataStore, default_url, open_store
from debug_server.store.address import is_postgres, sqlite_path
from debug_server.surfaces.cli.output import harmless
from debug_server.telemetry import configure_logging, open_telemetry

if TYPE_CHECKING:
    from debug_server.config.gateway import GatewayConfig
    from debug_server.engine.local import LocalEngine
    from debug_server.service import Service
    from debug_server.service.dry_runs import DryRuns
    from debug_server.service.environments import Environments
    from debug_server.service.first_token import FirstToken
    from debug_server.service.machine import Machine
    from debug_server.workers.spec import WorkerSpec
    from debug_server.workers.workers import Workers


class Local:
    """The parts of this machine, each created on first use."""

    def __init__(
        self,
        settings: RunnerSettings,
        database_url: str,
        *,
        environ: Mapping[str, str] = os.environ,
        worker_specs: Callable[[], list[WorkerSpec]] = list,
        place: Place | None = None,
        metrics: bool = True,
    ) -> None:
        self.settings = settings
        self.place = place or find_place(environ=environ)
        self.environ = environ
        self._worker_specs = worker_specs
        self._database_url = database_url
        self.telemetry = open_telemetry(metrics=metrics)

    @classmethod
    def open(
        cls,
        *,
        config: str | os.PathLike[str] | None = None,
        database_url: str | None = None,
        environ: Mapping[str, str] = os.environ,
        log_level: str = "WARNING",
        metrics: bool = True,
    ) -> Local:
        """From a settings file and the environment; without ``config`` the file is searched from this directory up.

        ``metrics`` is for processes that serve them.
        """
        configure_logging(log_level)
        placed = load_runner(config, environ=environ)
        for note in placed.notes(environ):
            sys.stderr.write(harmless(f"debug-server: {note}") + "\n")
        return cls(
            RunnerSettings.from_config(placed.loaded.value, owners=placed.place.owners),
            database_url or default_url(environ, placed.data),
            environ=environ,
            worker_specs=lambda: _declared_workers(placed.place, environ),
            place=placed.place,
            metrics=metrics,
        )

    @cached_property
    def store(self) -> MetadataStore:
        """The metadata store, migrated."""
        paths = self.settings.paths
        paths.prepare()
        if not self.shares_database:
            file = sqlite_path(self._database_url)
            for path in (file.parent, file):
                if path.exists():
                    check_trusted(path, paths.owners)
        store = open_store(self._database_url, data_folder=paths.artifacts_root)
        store.data_folder.make_paths_absolute(paths.artifacts_root)
        return store

    @property
    def shares_database(self) -> bool:
        """Whether other machines, and other folders of this one, may use the same database."""
        return is_postgres(self._database_url)

    @property
    def keepers_dir(self) -> Path:
        """Where the keepers of running commands are found."""
        return self.settings.paths.keepers_dir

    @property
    def server_lock_path(self) -> Path:
        """The lock file of the store's only server; with a shared database, of this folder's only server."""
        if self.shares_database:
            return self.settings.paths.artifacts_root / "server.lock"
        return sqlite_path(self._database_url).with_name("server.lock")

    @cached_property
    def supervisor(self) -> WorkerSupervisor:
        """Runs commands on this machine."""
        return WorkerSupervisor.from_settings(
            metadata_store=self.store, settings=self.settings, telemetry=self.telemetry
        )

    @cached_property
    def sessions(self) -> Sessions:
        """Workspaces of registered repositories."""
        return Sessions.of(self.store, self.settings, process=lambda: self.supervisor.owner)

    @cached_property
    def foreground(self) -> ForegroundRuns:
        """Runs commands in this process, in the calling thread."""
        engine = ForegroundEngine(store=self.store, supervisor=self.supervisor, sessions=self.sessions)
        return ForegroundRuns(store=self.store, engine=engine, sessions=self.sessions, settings=self.settings)

    @cached_property
    def environments(self) -> Environments:
        """Shared environments."""
        from debug_server.service.environments import Environments  # loads the builders

        return Environments(self.settings)

    @cached_property
    def machine(self) -> Machine:
        """The checks of this machine."""
        from debug_server.service.machine import Machine

        return Machine(
            settings=self.settings,
            open_store=lambda: self.store,
            capabilities=lambda: self.supervisor.pool.capabilities,
        )

    @cached_property
    def first_token(self) -> FirstToken:
        """The token of a new server."""
        from debug_server.service.first_token import FirstToken

        return FirstToken(self.store)

    @property
    def data_folder(self) -> Path:
        """The folder of all data."""
        return self.settings.paths.artifacts_root

    @property
    def dry_runs(self) -> DryRuns:
        """Plans of commands that are not run."""
        from debug_server.service.dry_runs import DryRuns

        return DryRuns(settings=self.settings, open_store=lambda: self.store)

    @cached_property
    def engine(self) -> LocalEngine:
        """The queue's engine, not yet started."""
        from debug_server.engine.local import LocalEngine  # a single run needs neither its threads nor its schedules

        return LocalEngine(
            store=self.store, supervisor=self.supervisor, sessions=self.sessions, telemetry=self.telemetry
        )

    @cached_property
    def workers(self) -> Workers:
        """The supervised workers declared in workers.toml, not yet started."""
        from debug_server.workers.workers import Workers

        return Workers(runner=self.supervisor, store=self.store, specs=self._worker_specs(), telemetry=self.telemetry)

    @cached_property
    def gateway_config(self) -> Loaded[GatewayConfig]:
        """The gateway's settings, from ``gateway.toml`` beside ``runner.toml`` and the environment."""
        from debug_server.config.gateway import GatewayConfig

        files = self.place.files("gateway.toml")
        return load(GatewayConfig, files=files, environ=self.environ, base=self.place.base, owners=self.place.owners)

    @cached_property
    def service(self) -> Service:
        """Every verb, for the surfaces."""
        from debug_server.service import (
            Service,
        )  # loading its messages would double the start-up time of other commands

        return Service(
            store=self.store,
            engine=self.engine,
            sessions=self.sessions,
            paths=self.settings.paths,
            shell=self.settings.default_shell,
            workers=self.workers,
            workspaces_per_token=self.settings.workspaces_per_token,
        )

    def close(self) -> None:
        """Close what was opened; running commands continue."""
        for name in ("service", "supervisor", "store"):
            if name in self.__dict__:
                self.__dict__[name].close()
        self.telemetry.close()

    def __enter__(self) -> Local:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _declared_workers(place: Place, environ: Mapping[str, str]) -> list[WorkerSpec]:
    from debug_server.config.workers import load_workers
    from debug_server.workers.spec import WorkerSpec

    files = place.files("workers.toml")
    found = [item for path in files for item in load_workers(path, environ, owners=place.owners).items()]
    return [WorkerSpec.from_config(name, loaded.value) for name, loaded in found]
