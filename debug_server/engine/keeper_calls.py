"""Sends requests to the keeper of a running command, whichever process started it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from debug_server.errors import KeeperError
from debug_server.model import Command
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.run_dirs import run_dir_for
from debug_server.store import MetadataStore

_DELIVER_SECONDS = 5.0
_DELIVER_RETRY = 0.01


class KeeperCalls:
    """Finds keepers by the run directories below one folder."""

    def __init__(self, *, store: MetadataStore, keepers_dir: Path) -> None:
        self._store = store
        self._keepers_dir = keepers_dir

    def deliver(self, command_id: int, message: dict[str, Any]) -> None:
        """Send a message to a running command of any process.

        A command that has not started needs no message: it reads its row when it starts.
        """
        deadline = time.monotonic() + _DELIVER_SECONDS
        while time.monotonic() < deadline:
            command = self._store.commands.get(command_id)
            if command.status != "running":
                return
            try:
                self.request(command, message)
            except KeeperError:
                time.sleep(_DELIVER_RETRY)
            else:
                return

    def request(self, command: Command, message: dict[str, Any]) -> None:
        """Send a request and wait for the reply; KeeperError if the keeper refuses."""
        with self.connect(command) as connection:
            reply = connection.request(message)
        if not reply["ok"]:
            raise KeeperError(f"command {command.id}: {reply['error']}")

    def connect(self, command: Command) -> KeeperConnection:
        """Connect to the command's keeper; its socket appears shortly after the row says ``running``."""
        deadline = time.monotonic() + _DELIVER_SECONDS
        while True:
            try:
                return KeeperConnection.connect(run_dir_for(self._keepers_dir, command.id, command.attempt))
            except KeeperError as error:
                command = self._store.commands.get(command.id)
                if command.status != "running":
                    raise KeeperError(f"command {command.id} is {command.status.value}: it is not running") from error
                if time.monotonic() > deadline:
                    raise
            time.sleep(_DELIVER_RETRY)
