"""Wakes followers of logs, with one inotify instance and one thread for the whole process.

Only the log is watched, not its index: a record is written before its bytes, so both exist at the notice for the bytes;
and sealing a log touches it. A wake-up carries no data: subscribe, then read, then wait, and nothing is missed.

While a log grows without a pause, wake-ups are delayed by a time that grows with the number of followers; that limits
the cost. The first write after a pause wakes all followers at once.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from debug_server.runner.inotify import (
    ATTRIB,
    CLOSE_WRITE,
    CREATE,
    IGNORED,
    MODIFY,
    MOVED_TO,
    ONLYDIR,
    OVERFLOW,
    Inotify,
    Notice,
)

_LOG = logging.getLogger(__name__)

_POLL_SECONDS = 0.02  # without inotify
_QUIET_PER_WATCH = 0.0005  # seconds after a wake-up, for each follower
_MAX_QUIET = 0.25
_MERGE_SECONDS = (0.0005, 0.005)  # minimum and maximum pause in which the kernel merges notices

_OF_LOG = MODIFY | CLOSE_WRITE | ATTRIB  # ATTRIB: the file was deleted while it is open
_OF_DIRECTORY = CREATE | MOVED_TO | ONLYDIR


class WakeUp:
    """A flag that one thread waits for and others set."""

    def __init__(self) -> None:
        # A lock as a binary semaphore: threading.Event needs two locks and twice the latency.
        self._semaphore = threading.Lock()
        self._semaphore.acquire()
        self._callback: Callable[[], object] | None = None

    def wait(self, timeout: float) -> bool:
        """Wait until the flag is raised, and lower it; False after ``timeout`` seconds."""
        return self._semaphore.acquire(timeout=timeout)

    def wake(self) -> None:
        """Raise the flag and call the callback; from any thread."""
        with contextlib.suppress(RuntimeError):  # it is raised already
            self._semaphore.release()
        if self._callback is not None:
            self._call(self._callback)

    def set_callback(self, callback: Callable[[], object] | None) -> None:
        """Call ``callback`` at each wake-up, in the waking thread: it must be fast, and safe after ``close``."""
        self._callback = callback

    def close(self) -> None:
        """Wake the waiting thread."""
        self.wake()

    def _call(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception:  # noqa: BLE001 - the thread that wakes all followers must survive a failing callback
            self._callback = None
            _LOG.warning("log_watch_callback_failed", exc_info=True)


class Watch(WakeUp):
    """A signal for changes, creation and deletion of one log; close it."""

    def __init__(self, watcher: LogWatcher, path: str) -> None:
        super().__init__()
        self.path = path
        self.target: _Target | None = None  # the watcher's
        self.noticed_at = math.inf  # monotonic time of the last wake-up: it covers all notices before it
        self._watcher = watcher

    def wait(self, timeout: float) -> bool:
        """Wait for a change; False after ``timeout`` seconds."""
        if self._watcher.forked():
            self._watcher = _shared()
            self._watcher.attach(self)
            self.noticed_at = math.inf
            return True  # changes since the fork were not watched
        return super().wait(timeout)

    def close(self) -> None:
        """Stop watching, and wake the waiting thread."""
        self._watcher.detach(self)
        super().close()


class _Target:
    """One watched inode, and its watches."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.watches: set[Watch] = set()
        self.quiet_until = 0.0


class LogWatcher:
    """One inotify instance and its thread; ``watch_log`` uses the one that the process shares."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._inotify: Inotify | None = None
        self._targets: dict[int, _Target] = {}
        self._changed: set[_Target] = set()
        self._polled: set[Watch] = set()  # not watched by the kernel: no such directory, no resources
        self._poll_at = 0.0
        self._quiet_until = 0.0  # until then woken followers have time to read
        self._warned = False

    def subscribe(self, path: str | os.PathLike[str]) -> Watch:
        """Watch the log at ``path``, which need not exist yet."""
        watch = Watch(self, str(Path(path).absolute()))
        self.attach(watch)
        return watch

    def forked(self) -> bool:
        """Whether this watcher belongs to a parent process, so that its thread does not exist here."""
        return self._pid != os.getpid()

    def attach(self, watch: Watch) -> None:
        """Start waking ``watch``."""
        with self._lock:
            if self._thread is None:
                if self._inotify is None:
                    self._open()
                thread = threading.Thread(target=self._run, name="log-watch", daemon=True)
                thread.start()
                self._thread = thread  # only when it runs: if no thread can be started, the next call tries again
            watch.target = None
            self._arm(watch)
            if self._polled and self._inotify is not None:
                self._inotify.interrupt_wait()

    def detach(self, watch: Watch) -> None:
        """Stop waking ``watch``; with the last watch of a log the kernel's watch is removed."""
        if not self.forked():
            with self._lock:
                self._polled.discard(watch)
                self._leave(watch)

    def abandon(self) -> None:
        """In a forked child: close our copies of the parent's descriptors."""
        if self._inotify is not None:
            self._inotify.close()

    def _open(self) -> None:
        try:
            self._inotify = Inotify()
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _LOG.warning("log_watch_polling", extra={"reason": str(error), "seconds": _POLL_SECONDS})

    def _arm(self, watch: Watch) -> None:
        """Watch the file; until it exists, its directory; if that is not possible, poll."""
        if self._inotify is None or not self._watched(self._inotify, watch):
            self._polled.add(watch)
        else:
            self._polled.discard(watch)

    def _watched(self, inotify: Inotify, watch: Watch) -> bool:
        try:
            if self._join(inotify, watch, watch.path, _OF_LOG):
                return True
            directory = self._join(inotify, watch, str(Path(watch.path).parent), _OF_DIRECTORY)
            return self._join(inotify, watch, watch.path, _OF_LOG) or directory  # it may have appeared meanwhile
        except OSError as error:
            self._warn(error)
            return False

    def _join(self, inotify: Inotify, watch: Watch, path: str, events: int) -> bool:
        """Move ``watch`` to the target at ``path``; False if nothing is there."""
        try:
            descriptor = inotify.add(path, events)
        except FileNotFoundError:
            return False
        target = self._targets.setdefault(descriptor, _Target(descriptor))
        if watch.target is not target:
            self._leave(watch)
            target.watches.add(watch)
            watch.target = target
        return True

    def _leave(self, watch: Watch) -> None:
        target, watch.target = watch.target, None
        if target is None:
            return
        target.watches.discard(watch)
        if not target.watches and self._targets.get(target.descriptor) is target and self._inotify is not None:
            del self._targets[target.descriptor]
            self._changed.discard(target)
            self._inotify.remove(target.descriptor)

    def _run(self) -> None:
        while True:
            self._pause()
            with self._lock:
                woken = [*self._noticed(), *self._polls(time.monotonic())]
                due = self._due(time.monotonic())
                woken += (watch for target in due for watch in target.watches)
            now = time.monotonic()
            for watch in woken:
                watch.noticed_at = now  # the same for all, so that they can share one read
                watch.wake()
            now = time.monotonic()  # again: waking many followers takes time
            for target in due:
                after = max(now, self._quiet_until) + len(target.watches) * _QUIET_PER_WATCH
                target.quiet_until = self._quiet_until = min(after, now + _MAX_QUIET)

    def _pause(self) -> None:
        if self._inotify is None:
            time.sleep(_POLL_SECONDS)
        elif self._changed:
            quiet = min((item.quiet_until for item in self._changed.copy()), default=0.0) - time.monotonic()
            least, most = _MERGE_SECONDS
            time.sleep(min(max(quiet, least), most))
        else:
            self._inotify.wait(_POLL_SECONDS if self._polled else None)

    def _noticed(self) -> Iterator[Watch]:
        """Process the kernel's notices; yields the watches whose log was created or deleted."""
        for notice in self._inotify.notices() if self._inotify is not None else ():
            if notice.mask & OVERFLOW:
                self._changed.update(self._targets.values())
            elif (target := self._targets.get(notice.descriptor)) is None:
                continue
            elif notice.mask & (IGNORED | CREATE | MOVED_TO):
                yield from self._rearm(target, notice)
            else:
                self._changed.add(target)

    def _rearm(self, target: _Target, notice: Notice) -> list[Watch]:
        gone = bool(notice.mask & IGNORED)
        if gone:
            del self._targets[target.descriptor]
            self._changed.discard(target)
        moved = [watch for watch in target.watches if gone or Path(watch.path).name == notice.name]
        for watch in moved:
            self._arm(watch)
        return moved

    def _polls(self, now: float) -> list[Watch]:
        """The watches to wake by polling; tries again to watch each."""
        if not self._polled or now < self._poll_at:
            return []
        self._poll_at = now + _POLL_SECONDS
        if self._inotify is None:
            self._open()
        polled = list(self._polled)
        for watch in polled:
            self._arm(watch)
        return polled

    def _due(self, now: float) -> list[_Target]:
        """The changed targets whose pause is over."""
        due = [target for target in self._changed if target.quiet_until <= now]
        self._changed.difference_update(due)
        return due


def watch_log(path: str | os.PathLike[str]) -> Watch:
    """Watch the log at ``path`` with the watcher of this process."""
    return _shared().subscribe(path)


_the_watcher = LogWatcher()


def _shared() -> LogWatcher:
    return _the_watcher


def _renew() -> None:
    """After a fork: the child has no watcher thread, and the lock may be held."""
    global _the_watcher
    _the_watcher.abandon()
    _the_watcher = LogWatcher()


os.register_at_fork(after_in_child=_renew)
