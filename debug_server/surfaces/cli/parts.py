"""What the command line needs of the composition root."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from debug_server.engine import Sessions
from debug_server.runner.settings import RunnerSettings
from debug_server.runner.worker import WorkerSupervisor
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
    def sessions(self) -> Sessions:
        """Workspaces of registered repositories."""

    @property
    def supervisor(self) -> WorkerSupervisor:
        """With virtual environments."""

    @property
    def bare_supervisor(self) -> WorkerSupervisor:
        """Without."""


OpenLocal = Callable[..., AbstractContextManager[LocalParts]]
