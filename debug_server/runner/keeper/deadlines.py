"""When a command's time is over: its wall clock, its silence, its processor time, the patience of who supervises it."""

from __future__ import annotations

from debug_server.runner.keeper.classify import Stop
from debug_server.runner.keeper.ladder import HOOK_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from debug_server.runner.keeper.keeper import Keeper

_FOR_EVER = 3600.0


def ends_by(orders: dict[str, Any], now: float) -> float | None:
    """When a command that starts now has ended at the latest, if its time is bounded; the watchdog's measure."""
    wall = orders["limits"].get("wall_seconds")
    if wall is None:
        return None
    hook = HOOK_SECONDS if orders["pre_kill"] else 0.0
    return float(now + wall["asked"] + orders["kill_grace"] + hook)


def passed(keeper: Keeper, now: float) -> Stop | None:
    """Why it is over, as far as the keeper has heard; None when it is not, or is ending already."""
    if keeper.leader_ended is not None or keeper.ladder.active:
        return None
    if keeper.orphan_timer.over(now):
        return Stop("cancelled", "nobody has supervised it for a while")
    return _limit_passed(keeper, now) if keeper.limits else None


def _limit_passed(keeper: Keeper, now: float) -> Stop | None:
    wall, idle, cpu = (keeper.asked(name) for name in ("wall_seconds", "idle_seconds", "cpu_seconds"))
    if wall is not None and now >= keeper.started + wall:
        return Stop("timed_out", f"ran longer than {wall:g} s", "wall_seconds")
    if idle is not None and now >= keeper.streams.last_output + idle and not keeper.streams.deaf:
        return Stop("idle_timed_out", f"wrote nothing for {idle:g} s", "idle_seconds")
    if _counts_cpu(keeper) and keeper.meter.cpu_seconds() >= cpu:
        return Stop("limit_exceeded", f"used more than {cpu:g} cpu seconds", "cpu_seconds")
    return None


def nearest(keeper: Keeper, now: float) -> float:
    """When to look again."""
    until = min(now + _FOR_EVER, keeper.orphan_timer.until)
    if (wall := keeper.asked("wall_seconds")) is not None:
        until = min(until, keeper.started + wall)
    if (idle := keeper.asked("idle_seconds")) is not None and not keeper.streams.deaf:
        until = min(until, keeper.streams.last_output + idle)
    if _counts_cpu(keeper):
        until = min(until, now + keeper.meter.cpu_patience(keeper.asked("cpu_seconds")))
    return until


def _counts_cpu(keeper: Keeper) -> bool:
    """Whether nobody but the keeper sees to it."""
    return "cpu_seconds" in keeper.limits and keeper.limits["cpu_seconds"]["by"] == "cgroup"
