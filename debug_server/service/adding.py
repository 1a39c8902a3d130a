"""A command that one thread adds and then runs, while a request waits for it.

request --run--> thread: add the row -> told -> run -> its end is committed -> what follows it
   ^                       |                              |                       |
   +---- wake: error, queued, or the row is enough -------+--- nothing follows ---+---- wake
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from debug_server.errors import ResourcesExhaustedError
from debug_server.model import Command
from debug_server.service.wakeups import Wakeups, wait_for

_LOG = logging.getLogger(__name__)
BEGIN_SECONDS = 50.0  # for a thread, where a request waits for the row alone: many proxies cut it within a minute
_POLL_SECONDS = 0.01


class Adding:
    """The command, or why it could not be added; created in the event loop of the request."""

    def __init__(
        self, add: Callable[[Callable[[Command], None]], Command], wakeups: Wakeups, *, until_ended: bool
    ) -> None:
        """``add`` adds the command, calls its argument and runs the command, if that can start at once.

        ``until_ended``: do not wake the request before the end of a command that runs at once.
        """
        self._add = add
        self._wakeups = wakeups
        self._until_ended = until_ended
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
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
        if self._command is not None:
            self._wakeups.forget(self._command.id)
        if not self._woken.is_set():
            self._wake()

    def _told(self, command: Command) -> None:
        self._command = command
        if not self._until_ended or command.owner is None:
            self._wake()
        elif not command.plan.may_have_follow_up:
            self._wakeups.at_end(command.id, self._wake)

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, deadline: float) -> Command:
        """The row of the command when it was added, or at the deadline; raises the error of adding it."""
        await wait_for(self._woken, deadline - time.monotonic())
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
