"""Ends keepers that do not answer: stopped by their own command, or past the deadline of the command.

    running --stopped, or late--> suspected: continued and asked --answers--> running
                                        |
                                        +--silent for too long--> killed; the command is ``lost``, its tree is ended

One thread for all commands of this process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from debug_server.runner.keeper_process import continue_keeper_if_stopped, end_keeper, is_stopped, process_state
from debug_server.runner.running_command import RunningCommand

_LOG = logging.getLogger(__name__)
_CHECK_SECONDS = 1.0
_UNINTERRUPTIBLE = "D"


class Watchdog:
    """Checks the keepers of ``running()`` once a second while there are any."""

    def __init__(
        self,
        running: Callable[[], Collection[RunningCommand]],
        *,
        patience: float,
        check_seconds: float = _CHECK_SECONDS,
    ) -> None:
        self._running = running
        self._patience = patience
        self._check_seconds = check_seconds
        self._lock = threading.Lock()
        self._needed = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def ensure_running(self) -> None:
        """Start the thread if needed; if no thread can be started, the next call tries again."""
        if not self._needed.is_set():
            with self._lock:
                if self._thread is None and not self._closed.is_set():
                    thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError as error:
                        _LOG.warning("watchdog_not_started", extra={"error": str(error)})
                        return
                    self._thread = thread
                self._needed.set()

    def close(self) -> None:
        """Stop the thread."""
        with self._lock:
            self._closed.set()
            self._needed.set()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            self._needed.wait()  # sleep while there are no commands
            if self._closed.wait(self._check_seconds):
                return
            with self._lock:
                found = list(self._running())
                if not found and not self._closed.is_set():
                    self._needed.clear()
            for running in found:
                try:
                    self.check(running, time.monotonic())
                except Exception as error:  # noqa: BLE001 - the thread's boundary: others must be checked too
                    _LOG.warning("watchdog_failed", extra={"error": f"{type(error).__name__}: {error}"})

    def check(self, running: RunningCommand, now: float) -> None:
        """Check one command."""
        keeper = running.handle["keeper"]
        state = process_state(keeper["pid"], keeper["start_time"])
        stopped, late = is_stopped(state), running.is_late(now, self._patience)
        if state is None or not (stopped or late):
            running.suspected_since = None
            return
        if stopped:
            continue_keeper_if_stopped(running.handle)
        if running.suspected_since is None:
            running.suspected_since = now
            _LOG.warning("keeper_silent", extra={"run_dir": str(running.run_dir), "state": state})
            running.send({"op": "status"})
        elif running.last_message_at > running.suspected_since and not stopped:
            running.extend_deadline(now, self._patience)
        elif now - running.suspected_since > self._patience and state != _UNINTERRUPTIBLE:
            # A process that waits for a disk receives the signal only when the disk answers, and then needs none.
            running.note_keeper_silence(now - running.suspected_since)
            end_keeper(running.handle)
