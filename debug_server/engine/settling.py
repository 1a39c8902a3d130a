"""What could not be written because the store was away: done as soon as it is back, however long that takes.

Three things may be left over: the end of a command that ran here, what follows a recorded end (files to keep, a session
to close), and a command that was claimed here and could not be prepared. None of them holds a thread or a place of the
engine meanwhile. If this process dies first, recovery and the housekeeper of the next one do the same from the disk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from functools import partial

from debug_server.engine.attempts import attempt
from debug_server.errors import StoreUnavailableError
from debug_server.model import Command
from debug_server.runner.pipeline import Pipeline

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_JOIN_SECONDS = 1.0  # it may be waiting for a locked database


class Settler:
    """One thread, asleep while nothing is left over."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        conclude: Callable[[Command], None],
        recover: Callable[[Collection[int]], object],
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self._pipeline = pipeline
        self._conclude = conclude
        self._recover = recover
        self._retry = retry_seconds
        self._changed = threading.Condition()
        self._ends: set[int] = set()  # being recorded or concluded now
        self._unconcluded: dict[int, Command] = {}
        self._unprepared: set[int] = set()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch for work."""
        self._thread = threading.Thread(target=self._run, name="settler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave what is left over to the next process."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def look(self) -> None:
        """There may be an end to record."""
        with self._changed:
            self._changed.notify_all()

    def conclude_later(self, command: Command) -> None:
        """Its end is recorded; what follows could not be done."""
        with self._changed:
            self._unconcluded[command.id] = command
            self._changed.notify_all()

    def give_back(self, command: Command) -> None:
        """It was claimed and could not be prepared: another claim is to begin with it anew."""
        with self._changed:
            self._unprepared.add(command.id)
            self._changed.notify_all()

    def holds(self, command_id: int) -> bool:
        """Whether something of the command is left over."""
        return command_id in self._left_over()

    def wait_for(self, command_id: int, seconds: float) -> None:
        """Until nothing of the command is left over, but no longer than ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: not self.holds(command_id), max(seconds, 0.0))

    def _left_over(self) -> set[int]:
        return {*self._pipeline.unsettled, *self._ends, *self._unconcluded, *self._unprepared}

    def _run(self) -> None:
        while not self._stopping:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._left_over())
            if not self._stopping and not self._settle():
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, self._retry)

    def _settle(self) -> bool:
        """One round; whether all of it could be done."""
        try:
            self._record_ends()
            self._do_conclusions()
            self._give_back()
        except StoreUnavailableError as error:
            _LOG.info("settling_postponed", extra={"error": str(error)})
        except Exception:  # noqa: BLE001 - the thread's boundary: the next round tries again
            _LOG.error("settling_failed", exc_info=True)
        return not self._left_over()

    def _record_ends(self) -> None:
        ends = self._pipeline.unsettled
        with self._changed:  # from here on they are ours until they are concluded: whoever waits for that sees no gap
            self._ends.update(ends)
        settled: list[Command] = []
        try:
            settled = self._pipeline.settle(ends)
        finally:
            with self._changed:
                self._unconcluded.update({command.id: command for command in settled})
                self._ends.clear()
                self._changed.notify_all()

    def _do_conclusions(self) -> None:
        for number, command in list(self._unconcluded.items()):
            step = partial(self._conclude, command)
            attempt("conclusion_failed", step, passing=StoreUnavailableError, command_id=number)
            with self._changed:
                del self._unconcluded[number]
                self._changed.notify_all()

    def _give_back(self) -> None:
        if numbers := set(self._unprepared):
            self._recover(numbers)
            with self._changed:
                self._unprepared -= numbers
                self._changed.notify_all()
