"""Writes that failed because the store was unavailable: retried until they succeed.

There are three kinds: recording the end of a command that ran here, doing its follow-up (copy artifacts, close the
session), and requeueing a claimed command that could not be prepared. None of them holds a thread or a
slot of the engine. If this process dies first, recovery and the housekeeper of the next process do the same from the
files on disk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from functools import partial

from debug_server.engine.run_or_log import run_or_log
from debug_server.errors import StoreUnavailableError
from debug_server.model import Command
from debug_server.runner.pipeline import Pipeline
from debug_server.runner.recovery import Claim

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_JOIN_SECONDS = 1.0  # the thread may be waiting for a locked database


class DeferredWrites:
    """One thread that sleeps while nothing is deferred."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        follow_up: Callable[[Command], None],
        recover: Callable[[Collection[Claim]], object],
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self._pipeline = pipeline
        self._follow_up = follow_up
        self._recover = recover
        self._retry = retry_seconds
        self._changed = threading.Condition()
        self._recording: set[int] = set()  # being recorded now
        self._follow_ups: dict[int, Command] = {}
        self._to_requeue: dict[int, int] = {}  # commands, and the attempts that were claimed
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="deferred-writes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; the next process does what is still deferred."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def wake(self) -> None:
        """Check for ends to record."""
        with self._changed:
            self._changed.notify_all()

    def follow_up_later(self, command: Command) -> None:
        """Retry the follow-up of a command whose end is recorded."""
        with self._changed:
            self._follow_ups[command.id] = command
            self._changed.notify_all()

    def requeue(self, command: Command) -> None:
        """Requeue a claimed command that could not be prepared."""
        with self._changed:
            self._to_requeue[command.id] = command.attempt
            self._changed.notify_all()

    def has(self, command_id: int) -> bool:
        """Whether a write for the command is deferred."""
        return command_id in self._deferred()

    def wait_for(self, command_id: int, seconds: float) -> None:
        """Wait until no write for the command is deferred, at most ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: not self.has(command_id), max(seconds, 0.0))

    def _deferred(self) -> set[int]:
        return {*self._pipeline.unrecorded, *self._recording, *self._follow_ups, *self._to_requeue}

    def _run(self) -> None:
        while not self._stopping:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._deferred())
            if not self._stopping and not self._run_once():
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, self._retry)

    def _run_once(self) -> bool:
        """Try every deferred write once; returns whether none is left."""
        try:
            self._record_ends()
            self._do_follow_ups()
            self._requeue_deferred()
        except StoreUnavailableError as error:
            _LOG.info("deferred_writes_postponed", extra={"error": str(error)})
        except Exception:  # noqa: BLE001 - the thread's boundary: the next round tries again
            _LOG.error("deferred_writes_failed", exc_info=True)
        return not self._deferred()

    def _record_ends(self) -> None:
        ends = self._pipeline.unrecorded
        with self._changed:  # set before the pipeline forgets them: ``has`` must be true without a gap
            self._recording.update(ends)
        recorded: list[Command] = []
        try:
            recorded = self._pipeline.record_ends(ends)
        finally:
            with self._changed:
                self._follow_ups.update({command.id: command for command in recorded})
                self._recording.clear()
                self._changed.notify_all()

    def _do_follow_ups(self) -> None:
        for number, command in list(self._follow_ups.items()):
            step = partial(self._follow_up, command)
            run_or_log("follow_up_failed", step, reraise=StoreUnavailableError, command_id=number)
            with self._changed:
                del self._follow_ups[number]
                self._changed.notify_all()

    def _requeue_deferred(self) -> None:
        if claims := set(self._to_requeue.items()):
            self._recover(claims)
            with self._changed:
                for number, attempt in claims:
                    if self._to_requeue[number] == attempt:  # else that attempt's successor is to be requeued, too
                        del self._to_requeue[number]
                self._changed.notify_all()
