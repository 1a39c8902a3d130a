"""Waking those who follow logs: one inotify instance and one thread for the whole process.

Only the log is watched, not its index: a record is written before its bytes, so that after the notice for the bytes
both are there; and sealing a log touches it. A wake-up says "look again" and carries nothing: subscribe, then look,
then wait, and nothing is missed.

The more are woken, the less often they are while their logs grow without a pause: that bounds what a crowd costs the
machine, whether it watches one log or many. The first write after a pause wakes everybody at once.
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

_POLL_SECONDS = 0.02  # where inotify cannot be had
_QUIET_PER_WATCH = 0.0005  # seconds after a wake-up, for each that was woken
_QUIET_AT_MOST = 0.25
_MERGE_SECONDS = (0.0005, 0.005)  # at least, at most: while a log is quiet its notices are left to merge in the kernel

_OF_LOG = MODIFY | CLOSE_WRITE | ATTRIB  # ATTRIB tells of a deletion while somebody has the file open
_OF_DIRECTORY = CREATE | MOVED_TO | ONLYDIR


class Signal:
    """A flag that one thread waits for and others raise."""

    def __init__(self) -> None:
        # A bare lock as a binary semaphore: threading.Event takes a second lock to wake, at twice the latency.
        self._lowered = threading.Lock()
        self._lowered.acquire()
        self._callback: Callable[[], object] | None = None

    def wait(self, timeout: float) -> bool:
        """Wait until the flag is raised, and lower it; False after ``timeout`` seconds."""
        return self._lowered.acquire(timeout=timeout)

    def wake(self) -> None:
        """Raise the flag and call the callback; from any thread."""
        with contextlib.suppress(RuntimeError):  # it is raised already
            self._lowered.release()
        if self._callback is not None:
            self._call(self._callback)

    def set_callback(self, callback: Callable[[], object] | None) -> None:
        """Have ``callback`` called at each wake-up, in the waking thread: make it quick, and safe after ``close``."""
        self._callback = callback

    def close(self) -> None:
        """Wake who waits."""
        self.wake()

    def _call(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception:  # noqa: BLE001 - the thread that wakes everybody must outlive any one callback
            self._callback = None
            _LOG.warning("log_watch_callback_failed", exc_info=True)


class Watch(Signal):
    """A signal that is raised when one log changes, appears or goes away; close it."""

    def __init__(self, watcher: LogWatcher, path: str) -> None:
        super().__init__()
        self.path = path
        self.target: _Target | None = None  # the watcher's
        self.noticed_at = math.inf  # monotonic: what was noticed until then has been told by a wake-up
        self._watcher = watcher

    def wait(self, timeout: float) -> bool:
        """Wait for a change; False after ``timeout`` seconds."""
        if self._watcher.forked():
            self._watcher = _shared()
            self._watcher.attach(self)
            self.noticed_at = math.inf
            return True  # nobody was watching since the fork
        return super().wait(timeout)

    def close(self) -> None:
        """Stop watching, and wake who waits."""
        self._watcher.detach(self)
        super().close()


class _Target:
    """One inode that the kernel watches, and who wants to know."""

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
        self._polled: set[Watch] = set()  # what the kernel cannot watch for us: no such directory, no resources
        self._poll_at = 0.0
        self._quiet_until = 0.0  # by then all who were woken have had their time
        self._warned = False

    def subscribe(self, path: str | os.PathLike[str]) -> Watch:
        """Watch the log at ``path``, which need not exist yet."""
        watch = Watch(self, str(Path(path).absolute()))
        self.attach(watch)
        return watch

    def forked(self) -> bool:
        """Whether this is the hub of a parent process, whose thread does not exist here."""
        return self._pid != os.getpid()

    def attach(self, watch: Watch) -> None:
        """Begin to wake ``watch``."""
        with self._lock:
            if self._thread is None:
                if self._inotify is None:
                    self._open()
                thread = threading.Thread(target=self._run, name="log-watch", daemon=True)
                thread.start()
                self._thread = thread  # only once it runs: where no thread can be had, the next one tries again
            watch.target = None
            self._arm(watch)
            if self._polled and self._inotify is not None:
                self._inotify.ring()

    def detach(self, watch: Watch) -> None:
        """Wake ``watch`` no more; with the last one of a log goes the kernel's watch."""
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
        """Have the file watched; until it exists, its directory; until that can be had, poll."""
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
                watch.noticed_at = now  # the same for all, so that one's look at the log can serve the others
                watch.wake()
            now = time.monotonic()  # again: waking a crowd takes time of its own
            for target in due:
                after = max(now, self._quiet_until) + len(target.watches) * _QUIET_PER_WATCH
                target.quiet_until = self._quiet_until = min(after, now + _QUIET_AT_MOST)

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
        """Take in what the kernel says; yields those whose log appeared or went away."""
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
        """Those who have to be woken because nobody else will; each tries again to be watched."""
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
        """What has changed and is not quiet."""
        due = [target for target in self._changed if target.quiet_until <= now]
        self._changed.difference_update(due)
        return due


def watch_log(path: str | os.PathLike[str]) -> Watch:
    """Watch the log at ``path`` by the watcher that the process shares."""
    return _shared().subscribe(path)


_the_watcher = LogWatcher()


def _shared() -> LogWatcher:
    return _the_watcher


def _renew() -> None:
    """A child of a fork has neither the thread nor, perhaps, a free lock."""
    global _the_watcher
    _the_watcher.abandon()
    _the_watcher = LogWatcher()


os.register_at_fork(after_in_child=_renew)
