"""The stop ladder, which ends a tree: hook, TERM, grace, KILL until the tree is empty.

idle --begin--> hook --ended or timed out--> term --grace over--> kill --empty--> done
                  (skipped when there is none)        (directly to done if TERM was enough)
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from debug_server.runner.keeper.tree import Tree, send_signal

HOOK_SECONDS = 5.0
_KILL_EVERY = 0.005
_GIVE_UP_SECONDS = 30.0


class Ladder:
    """Ends one tree."""

    def __init__(self, tree: Tree, grace: float, start_hook: Callable[[], int | None]) -> None:
        self._tree = tree
        self.grace = grace
        self._start_hook = start_hook
        self.hook_pid: int | None = None
        self.state = "idle"
        self.deadline: float | None = None
        self._began = self._killed = self._give_up = 0.0

    @property
    def active(self) -> bool:
        """Whether it has begun."""
        return self.state != "idle"

    def begin(self, now: float, *, hook: bool) -> None:
        """Start with the hook or TERM; later calls change nothing."""
        if self.active:
            return
        self._began = now
        self.hook_pid = self._start_hook() if hook else None
        if self.hook_pid is None:
            self._terminate(now)
        else:
            self.state, self.deadline = "hook", now + HOOK_SECONDS

    def hook_ended(self, now: float) -> None:
        """The hook was reaped."""
        self.hook_pid = None
        if self.state == "hook":
            self._terminate(now)

    def kill_now(self, now: float) -> None:
        """Go to KILL at once."""
        if self.state in ("hook", "term"):
            self._kill(now)

    def step(self, now: float) -> None:
        """Do what is due."""
        if self.deadline is None or now < self.deadline:
            return
        if self.state == "hook":
            self._terminate(now)
        elif self.state == "term":
            self._kill(now)
        elif self.state == "kill":
            self._tree.kill()
            self.deadline = now + _KILL_EVERY if now < self._give_up else None

    @property
    def gave_up(self) -> bool:
        """Whether some process cannot be killed (uninterruptible, or of another user)."""
        return self.state == "kill" and self.deadline is None

    def times(self) -> dict[str, float]:
        """Seconds until the tree was empty, since the beginning and since the first KILL, if any."""
        now = time.monotonic()
        found = {"seconds": round(now - self._began, 6)}
        if self._killed:
            found["seconds_after_kill"] = round(now - self._killed, 6)
        return found

    def _terminate(self, now: float) -> None:
        self._end_hook()
        self.state, self.deadline = "term", now + self.grace
        self._tree.terminate()

    def _kill(self, now: float) -> None:
        self._end_hook()
        self.state, self._killed = "kill", now
        self._give_up = now + _GIVE_UP_SECONDS
        self.deadline = now + _KILL_EVERY
        self._tree.kill()

    def _end_hook(self) -> None:
        if self.hook_pid is not None:
            send_signal(-self.hook_pid, signal.SIGKILL)  # it leads a session: kill its children too
