"""Assembles the exit record from the keeper's observations and counters."""

from __future__ import annotations

from debug_server.runner.keeper import processes
from debug_server.runner.keeper.classify import Observations, classify
from debug_server.runner.keeper.command import Command
from debug_server.runner.log_format import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def assemble(command: Command, ended: float) -> dict[str, Any]:
    """The exit reason, resource usage and evidence."""
    oom_kills = command.meter.oom_kills()
    seen = Observations(
        status=command.status,
        stop=command.stop,
        oom_kills=oom_kills,
        spawn_error=command.spawn_error,
        file_size_limit=command.asked("file_size_bytes"),
        cpu_limit=command.asked("cpu_seconds"),
    )
    return classify(seen) | {
        "wall_seconds": round(ended - (command.started or ended), 6),
        "cpu_seconds": round(command.meter.cpu_seconds() or command.usage.cpu_seconds, 6),
        "peak_memory_bytes": command.meter.peak_memory() or command.usage.peak_memory,
        "stdout_bytes": command.output.counts[STDOUT],
        "stderr_bytes": command.output.counts[STDERR],
        "mechanism": command.tree.mechanism,
        "limits": command.limits,
        "isolation": command.orders["isolation"]["report"] if command.orders["isolation"] else {},
        "evidence": _evidence(command, oom_kills),
    }


def _evidence(command: Command, oom_kills: int) -> dict[str, Any]:
    evidence = command.evidence
    if counters := command.meter.counters(command.limits, oom_kills):
        evidence["counters"] = counters
    if command.output.tail:
        evidence["last_lines"] = command.output.tail.decode("utf-8", "replace").splitlines()[-10:]
    if command.output.dropped:
        evidence["dropped_bytes"] = command.output.dropped
    if command.tree.left and command.spawn_error is None:
        evidence["left_group"] = len(command.tree.left)
    if command.ladder.active:
        evidence["ladder"] = command.ladder.times()
    if command.ladder.gave_up:
        evidence["survivors"] = processes.describe(command.tree, command.orders)
    return evidence
