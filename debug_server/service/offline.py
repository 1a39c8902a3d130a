"""A service without a server: it queues runs in the store, and any server on that store runs them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from debug_server.config import LoadedConfig
from debug_server.engine import LocalEngine, Sessions
from debug_server.runner.settings import RunnerSettings
from debug_server.runner.worker import WorkerSupervisor
from debug_server.service.service import Service
from debug_server.store import default_url, open_store


@contextmanager
def offline_service(runner_config: LoadedConfig, environ: Mapping[str, str] = os.environ) -> Iterator[Service]:
    """A service over the store of these settings; its engine is never started."""
    settings = RunnerSettings.from_config(runner_config.loaded.value, trusted_uids=runner_config.location.trusted_uids)
    with open_store(default_url(environ, runner_config.data), data_folder=runner_config.data) as store:
        supervisor = WorkerSupervisor.from_settings(metadata_store=store, settings=settings)
        sessions = Sessions(store=store, paths=settings.paths, process=lambda: supervisor.owner)
        engine = LocalEngine(store=store, supervisor=supervisor, sessions=sessions)
        service = Service(
            store=store, engine=engine, sessions=sessions, paths=settings.paths, shell=settings.default_shell
        )
        try:
            yield service
        finally:
            service.close()
