"""A command that one thread adds and then runs, while a request waits for it.

request --run--> thread: add the row -> told -> run -> its end is committed
   ^                       |                              |
   +---- wake: error, queued, or the row is enough -------+---- one wake-up, without reading the store
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from debug_server.errors import ResourcesExhaustedError
from debug_server.model import Command
from debug_server.service.wakeups import NewSubject, wait_for

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.01


class Adding:
    """The command, or why it could not be added."""

    def __init__(
        self, add: Callable[[Callable[[Command], None]], Command], new: NewSubject, *, until_ended: bool
    ) -> None:
        """``add`` adds the command, calls its argument and runs the command, if that can start at once.

        ``until_ended``: do not wake the request before the end of a command that runs at once.
        """
        self._add = add
        self._new = new
        self._until_ended = until_ended
        self._begin = threading.Lock()  # held by whoever decides: the thread to begin, or the request to leave
        self._command: Command | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        """Add and run the command; called in a thread of its own."""
        if not self._begin.acquire(blocking=False):
            return
        try:
            self._add(self._told)
        except Exception as error:  # noqa: BLE001 - raised in the request, unless that has its answer
            self._error = error
            if self._command is not None:
                _LOG.exception("command_failed", extra={"command_id": self._command.id})
        if not self._new.woken.is_set():  # nothing was added, or its end could not be recorded
            self._new.wake()

    def _told(self, command: Command) -> None:
        self._command = command
        if self._until_ended and command.owner is not None:
            self._new.created(("command", command.id))
        else:
            self._new.wake()

    async def wait(self, deadline: float | None) -> Command:
        """The row of the command when it was added, or at the deadline; raises the error of adding it."""
        if deadline is None:
            await self._new.woken.wait()
        else:
            await wait_for(self._new.woken, deadline - time.monotonic())
        while (
            self._command is None and self._error is None
        ):  # the deadline came first: adding takes ten seconds at most
            if self._begin.acquire(blocking=False):
                raise ResourcesExhaustedError("no thread can be created to run the command: try again in a moment")
            await asyncio.sleep(_POLL_SECONDS)
        if self._error is not None:
            raise self._error
        assert self._command is not None
        return self._command
