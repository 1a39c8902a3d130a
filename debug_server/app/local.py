"""Builds the components of one machine from the settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from debug_server.config import ConfigLocation, Loaded, find_config_location, load, load_runner
from debug_server.disk import check_trusted
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.settings import RunnerSettings
from debug_server.surfaces.cli.output import without_controls
from debug_server.telemetry import configure_logging, open_telemetry

if TYPE_CHECKING:  # each part loads its modules when it is made: a command line starts keepers meanwhile
    from debug_server.config.gateway import GatewayConfig
    from debug_server.engine.local import LocalEngine
    from debug_server.engine.sessions import Sessions
    from debug_server.runner.worker import WorkerSupervisor
    from debug_server.service import Service
    from debug_server.service.dry_runs import DryRuns
    from debug_server.service.environments import Environments
    from debug_server.service.first_token import FirstToken
    from debug_server.service.foreground import ForegroundRuns
    from debug_server.service.machine import Machine
    from debug_server.store import MetadataStore
    from debug_server.workers.spec import WorkerSpec
    from debug_server.workers.workers import Workers


class Local:
    """The components of this machine, each created on first use."""

    def __init__(
        self,
        settings: RunnerSettings,
        database_url: str | None,
        *,
        environ: Mapping[str, str] = os.environ,
        worker_specs: Callable[[], list[WorkerSpec]] = list,
        location: ConfigLocation | None = None,
        metrics: bool = True,
    ) -> None:
        self.settings = settings
        self.location = location or find_config_location(environ=environ)
        self.environ = environ
        self._worker_specs = worker_specs
        self._given_database_url = database_url
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
        """From a settings file and the environment; without ``config`` it is searched from the current directory up.

        ``metrics`` is for processes that serve metrics.
        """
        configure_logging(log_level)
        runner_config = load_runner(config, environ=environ)
        for note in runner_config.notes(environ):
            sys.stderr.write(without_controls(f"debug-server: {note}") + "\n")
        return cls(
            RunnerSettings.from_config(runner_config.loaded.value, trusted_uids=runner_config.location.trusted_uids),
            database_url,
            environ=environ,
            worker_specs=lambda: _declared_workers(runner_config.location, environ),
            location=runner_config.location,
            metrics=metrics,
        )

    @cached_property
    def _database_url(self) -> str:
        from debug_server.store import default_url

        return self._given_database_url or default_url(self.environ, self.settings.paths.artifacts_root)

    @cached_property
    def store(self) -> MetadataStore:
        """The metadata store, migrated."""
        from debug_server.store import open_store
        from debug_server.store.address import sqlite_path

        paths = self.settings.paths
        paths.prepare()
        if not self.shares_database:
            file = sqlite_path(self._database_url)
            for path in (file.parent, file):
                if path.exists():
                    check_trusted(path, paths.trusted_uids)
        store = open_store(self._database_url, data_folder=paths.artifacts_root)
        store.data_folder.make_paths_absolute(paths.artifacts_root)
        return store

    @property
    def shares_database(self) -> bool:
        """Whether other machines, and other folders of this one, may use the same database."""
        from debug_server.store.address import is_postgres

        return is_postgres(self._database_url)

    @property
    def keepers_dir(self) -> Path:
        """Where the keepers of running commands are found."""
        return self.settings.paths.keepers_dir

    @property
    def server_lock_path(self) -> Path:
        """The lock file that allows one server per store; with a shared database, one server per data folder."""
        if self.shares_database:
            return self.settings.paths.artifacts_root / "server.lock"
        from debug_server.store.address import sqlite_path

        return sqlite_path(self._database_url).with_name("server.lock")

    @cached_property
    def pool(self) -> KeeperPool:
        """The keepers of the supervisor."""
        return KeeperPool.of(self.settings)

    def start_keeper(self) -> None:
        """Start a keeper while the rest of what runs a command in the foreground is being loaded."""
        self.pool.start()

    @cached_property
    def supervisor(self) -> WorkerSupervisor:
        """Runs commands on this machine."""
        from debug_server.runner.worker import WorkerSupervisor

        return WorkerSupervisor.from_settings(
            metadata_store=self.store, settings=self.settings, telemetry=self.telemetry, pool=self.pool
        )

    @cached_property
    def sessions(self) -> Sessions:
        """Workspaces of registered repositories."""
        from debug_server.engine.sessions import Sessions

        return Sessions.of(self.store, self.settings, process=lambda: self.supervisor.owner)

    @cached_property
    def foreground(self) -> ForegroundRuns:
        """Runs commands in this process, in the calling thread."""
        from debug_server.engine.foreground import ForegroundEngine
        from debug_server.service.foreground import ForegroundRuns

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

        files = self.location.files("gateway.toml")
        return load(
            GatewayConfig,
            files=files,
            environ=self.environ,
            base=self.location.base,
            trusted_uids=self.location.trusted_uids,
        )

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
        for name in ("service", "supervisor", "pool", "store"):
            if name in self.__dict__:
                self.__dict__[name].close()
        self.telemetry.close()

    def __enter__(self) -> Local:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _declared_workers(location: ConfigLocation, environ: Mapping[str, str]) -> list[WorkerSpec]:
    from debug_server.config.workers import load_workers
    from debug_server.workers.spec import WorkerSpec

    files = location.files("workers.toml")
    found = [item for path in files for item in load_workers(path, environ, trusted_uids=location.trusted_uids).items()]
    return [WorkerSpec.from_config(name, loaded.value) for name, loaded in found]
