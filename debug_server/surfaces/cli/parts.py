"""The components of the composition root that the command line uses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a command that speaks to a server, or prints help, loads none of this
    from pathlib import Path

    from debug_server.service import Service
    from debug_server.service.environments import Environments
    from debug_server.service.first_token import FirstToken
    from debug_server.service.foreground import ForegroundRuns
    from debug_server.service.machine import Machine


class LocalComponents(Protocol):
    """The parts on this machine, each made when it is first used."""

    @property
    def data_folder(self) -> Path:
        """Where this machine's server keeps everything."""

    @property
    def server_lock_path(self) -> Path:
        """The lock file of the store's only server."""

    @property
    def keepers_dir(self) -> Path:
        """Where the keepers of running commands are found."""

    def start_keeper(self) -> None:
        """Start a keeper while the rest of what runs a command in the foreground is being loaded."""

    @property
    def foreground(self) -> ForegroundRuns:
        """Runs in this process."""

    @property
    def environments(self) -> Environments:
        """Shared environments."""

    @property
    def machine(self) -> Machine:
        """What this machine can do."""

    @property
    def first_token(self) -> FirstToken:
        """The token of a new server."""

    @property
    def service(self) -> Service:
        """Every verb."""


OpenLocal = Callable[..., AbstractContextManager[LocalComponents]]
