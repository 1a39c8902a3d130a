"""Passes our stdin to a command of a session while its log is followed."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

from debug_server.client import calls
from debug_server.errors import DebugServerError, KeeperError
from debug_server.messages import CommandReply
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.passthrough import forwarded_stdin

_PENDING_SECONDS = 0.2  # between questions whether a waiting command has started


class SentInput:
    """The stdin of one command, by requests; KeeperError once the command has ended."""

    def __init__(self, backend: Backend, command_id: int) -> None:
        self._backend = backend
        self._command_id = command_id

    def write(self, data: bytes) -> None:
        """Write data; returns when the command's pipe has accepted all of it, however late the command reads."""
        self._send(data, close=False)

    def close(self) -> None:
        """Close stdin."""
        self._send(b"", close=True)

    def resize(self, _: Mapping[str, int]) -> None:
        """Does nothing: the size of a terminal cannot be changed by requests."""

    def _send(self, data: bytes, *, close: bool) -> None:
        write_id = secrets.token_hex(8)  # of every attempt, so that a repeated one is applied once
        while True:
            try:
                self._backend.send_from_thread(
                    calls.write_stdin(self._command_id, data, close=close, write_id=write_id)
                )
            except DebugServerError as error:
                if self._has_ended():
                    raise KeeperError("the command has ended") from error
            else:
                return

    def _has_ended(self) -> bool:
        return self._backend.send_from_thread(calls.get_command(self._command_id)).ended


def sent_stdin(backend: Backend, command: CommandReply, *, tty_mode: bool) -> AbstractContextManager[None]:
    """Send our stdin to a command during the block, once it has started."""

    def connect() -> SentInput | None:
        with contextlib.suppress(DebugServerError):
            if backend.send_from_thread(calls.get_command(command.id)).status != "pending":
                return SentInput(backend, command.id)
        time.sleep(_PENDING_SECONDS)
        return None

    return forwarded_stdin(connect, tty_mode=tty_mode)
