"""The time limits of a command: wall clock, idle time, CPU time, and time without a supervisor."""

from __future__ import annotations

import math

from debug_server.runner.keeper.classify import Stop
from debug_server.runner.keeper.control import Control
from debug_server.runner.keeper.ladder import HOOK_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from debug_server.runner.keeper.keeper import Keeper

_MAX_WAIT = 3600.0


def ends_by(orders: dict[str, Any], now: float) -> float | None:
    """The time by which a command that starts now must have ended, if it has a timeout; for the watchdog."""
    wall = orders["limits"].get("wall_seconds")
    if wall is None:
        return None
    hook = HOOK_SECONDS if orders["pre_kill"] else 0.0
    return float(now + wall["asked"] + orders["kill_grace"] + hook)


def passed(keeper: Keeper, now: float) -> Stop | None:
    """The limit that has passed; None if there is none, or the command is already ending."""
    if keeper.leader_ended is not None or keeper.ladder.active:
        return None
    if keeper.orphan_timer.over(now):
        return Stop("cancelled", f"no client was attached for {keeper.orders['orphan_seconds']:g} s")
    return _limit_passed(keeper, now) if keeper.limits else None


def _limit_passed(keeper: Keeper, now: float) -> Stop | None:
    wall, idle, cpu = (keeper.asked(name) for name in ("wall_seconds", "idle_seconds", "cpu_seconds"))
    if wall is not None and now >= keeper.started + wall:
        return Stop("timed_out", f"ran longer than {wall:g} s", "wall_seconds")
    if idle is not None and now >= keeper.streams.last_output + idle and not keeper.streams.paused:
        return Stop("idle_timed_out", f"wrote nothing for {idle:g} s", "idle_seconds")
    if _counts_cpu(keeper) and keeper.meter.cpu_seconds() >= cpu:
        return Stop("limit_exceeded", f"used more than {cpu:g} cpu seconds", "cpu_seconds")
    return None


def nearest(keeper: Keeper, now: float) -> float:
    """The time of the next check."""
    until = min(now + _MAX_WAIT, keeper.orphan_timer.until)
    if (wall := keeper.asked("wall_seconds")) is not None:
        until = min(until, keeper.started + wall)
    if (idle := keeper.asked("idle_seconds")) is not None and not keeper.streams.paused:
        until = min(until, keeper.streams.last_output + idle)
    if _counts_cpu(keeper):
        until = min(until, now + keeper.meter.cpu_patience(keeper.asked("cpu_seconds")))
    return until


def _counts_cpu(keeper: Keeper) -> bool:
    """Whether the keeper itself enforces the CPU limit."""
    return "cpu_seconds" in keeper.limits and keeper.limits["cpu_seconds"]["by"] == "cgroup"


class OrphanTimer:
    """Expires when no client has been attached to a relay for too long: a worker without a supervisor must end."""

    def __init__(self, control: Control, patience: float | None) -> None:
        self._control = control
        self._patience = patience
        self.until = math.inf  # the expiry, as of the last check

    def over(self, now: float) -> bool:
        """Whether the time has expired."""
        if self._patience is None:
            return False
        if any(client.attached for client in self._control.clients.values()):
            self.until = math.inf
        elif self.until == math.inf:
            self.until = now + self._patience
        return now >= self.until
