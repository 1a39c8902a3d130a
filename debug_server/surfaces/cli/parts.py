"""What the command line needs of the composition root."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a command that speaks to a server, or prints help, loads none of this
    from pathlib import Path

    from debug_server.engine import LocalEngine, Sessions
    from debug_server.runner.settings import RunnerSettings
    from debug_server.runner.worker import WorkerSupervisor
    from debug_server.service import Service
    from debug_server.service.foreground import ForegroundRuns
    from debug_server.store import MetadataStore


class LocalParts(Protocol):
    """The parts on this machine."""

    @property
    def settings(self) -> RunnerSettings:
        """As configured."""

    @property
    def store(self) -> MetadataStore:
        """Opened on first use."""

    @property
    def server_lock_path(self) -> Path:
        """What the one server of the store holds locked."""

    @property
    def sessions(self) -> Sessions:
        """Workspaces of registered repositories."""

    @property
    def supervisor(self) -> WorkerSupervisor:
        """Runs commands on this machine."""

    @property
    def foreground(self) -> ForegroundRuns:
        """Runs in this process."""

    @property
    def engine(self) -> LocalEngine:
        """The queue's engine, not yet started."""

    @property
    def service(self) -> Service:
        """Every verb."""


OpenLocal = Callable[..., AbstractContextManager[LocalParts]]
