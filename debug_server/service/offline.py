"""A service without a server: it queues runs in the store, and any server on that store runs them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from debug_server.config import Placed
from debug_server.engine import LocalEngine, Sessions
from debug_server.runner.settings import RunnerSettings
from debug_server.runner.worker import WorkerSupervisor
from debug_server.service.service import Service
from debug_server.store import default_url, open_store


@contextmanager
def offline_service(placed: Placed, environ: Mapping[str, str] = os.environ) -> Iterator[Service]:
    """A service over the store of these settings; its engine is never started."""
    settings = RunnerSettings.from_config(placed.loaded.value, trusted_uids=placed.place.trusted_uids)
    with open_store(default_url(environ, placed.data), data_folder=placed.data) as store:
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
