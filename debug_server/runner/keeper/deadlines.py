"""The time limits of a command: wall clock, idle time, CPU time, and time without a supervisor."""

from __future__ import annotations

import math

from debug_server.runner.keeper.classify import Stop
from debug_server.runner.keeper.command import Command
from debug_server.runner.keeper.control import Control
from debug_server.runner.keeper.ladder import HOOK_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_WAIT = 3600.0


def ends_by(orders: dict[str, Any], now: float) -> float | None:
    """The time by which a command that starts now must have ended, if it has a timeout; for the watchdog."""
    wall = orders["limits"].get("wall_seconds")
    if wall is None:
        return None
    hook = HOOK_SECONDS if orders["pre_kill"] else 0.0
    return float(now + wall["asked"] + orders["kill_grace"] + hook)


class Deadlines:
    """The limits of one command that depend on time."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._orphan_timer = OrphanTimer(command.control, command.orders["orphan_seconds"])

    def passed(self, now: float) -> Stop | None:
        """The limit that has passed; None if there is none, or the command is already ending."""
        command = self._command
        if command.leader_ended is not None or command.ladder.active:
            return None
        if self._orphan_timer.over(now):
            return Stop("cancelled", f"no client was attached for {command.orders['orphan_seconds']:g} s")
        return _limit_passed(command, now) if command.limits else None

    def nearest(self, now: float) -> float:
        """The time of the next check."""
        command = self._command
        until = min(now + _MAX_WAIT, self._orphan_timer.until)
        if (wall := command.asked("wall_seconds")) is not None:
            until = min(until, command.started + wall)
        if (idle := command.asked("idle_seconds")) is not None and not command.streams.paused:
            until = min(until, command.streams.last_output + idle)
        if _counts_cpu(command):
            until = min(until, now + command.meter.cpu_patience(command.asked("cpu_seconds")))
        return until


def _limit_passed(command: Command, now: float) -> Stop | None:
    wall, idle, cpu = (command.asked(name) for name in ("wall_seconds", "idle_seconds", "cpu_seconds"))
    if wall is not None and now >= command.started + wall:
        return Stop("timed_out", f"ran longer than {wall:g} s", "wall_seconds")
    if idle is not None and now >= command.streams.last_output + idle and not command.streams.paused:
        return Stop("idle_timed_out", f"wrote nothing for {idle:g} s", "idle_seconds")
    if _counts_cpu(command) and command.meter.cpu_seconds() >= cpu:
        return Stop("limit_exceeded", f"used more than {cpu:g} cpu seconds", "cpu_seconds")
    return None


def _counts_cpu(command: Command) -> bool:
    """Whether the keeper itself enforces the CPU limit."""
    return "cpu_seconds" in command.limits and command.limits["cpu_seconds"]["by"] == "cgroup"


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
