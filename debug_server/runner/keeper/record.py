"""Assembles the exit record from the keeper's observations and counters."""

from __future__ import annotations

from debug_server.runner.keeper import redaction
from debug_server.runner.keeper.classify import Observations, classify
from debug_server.runner.keeper.linux import stat_fields
from debug_server.runner.log_format import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from debug_server.runner.keeper.keeper import Keeper

_LISTED_PROCESSES = 40
_SHOWN, _READ = 200, 1 << 16  # bytes of a command line in the record, and bytes read: redaction makes it shorter


def assemble(keeper: Keeper, ended: float) -> dict[str, Any]:
    """The exit reason, resource usage and evidence."""
    oom_kills = keeper.meter.oom_kills()
    seen = Observations(
        status=keeper.status,
        stop=keeper.stop,
        oom_kills=oom_kills,
        spawn_error=keeper.spawn_error,
        file_size_limit=keeper.asked("file_size_bytes"),
        cpu_limit=keeper.asked("cpu_seconds"),
    )
    return classify(seen) | {
        "wall_seconds": round(ended - (keeper.started or ended), 6),
        "cpu_seconds": round(keeper.meter.cpu_seconds() or keeper.usage.cpu_seconds, 6),
        "peak_memory_bytes": keeper.meter.peak_memory() or keeper.usage.peak_memory,
        "stdout_bytes": keeper.output.counts[STDOUT],
        "stderr_bytes": keeper.output.counts[STDERR],
        "mechanism": keeper.tree.mechanism,
        "limits": keeper.limits,
        "evidence": _evidence(keeper, oom_kills),
    }


def _evidence(keeper: Keeper, oom_kills: int) -> dict[str, Any]:
    evidence = keeper.evidence
    if counters := keeper.meter.counters(keeper.limits, oom_kills):
        evidence["counters"] = counters
    if keeper.output.tail:
        evidence["last_lines"] = keeper.output.tail.decode("utf-8", "replace").splitlines()[-10:]
    if keeper.output.dropped:
        evidence["dropped_bytes"] = keeper.output.dropped
    if keeper.tree.left and keeper.spawn_error is None:
        evidence["left_group"] = len(keeper.tree.left)
    if keeper.ladder.active:
        evidence["ladder"] = keeper.ladder.times()
    if keeper.ladder.gave_up:
        evidence["survivors"] = describe(keeper)
    return evidence


def describe(keeper: Keeper) -> list[dict[str, Any]]:
    """Pid, state, parent and command line of the processes of the tree, without secrets."""
    listed = []
    for pid in keeper.tree.pids()[:_LISTED_PROCESSES]:
        fields = stat_fields(pid)
        if fields is not None:
            listed.append(
                {"pid": pid, "state": fields[0], "ppid": int(fields[1]), "command": _command_line(keeper, pid)}
            )
    return listed


def _command_line(keeper: Keeper, pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            line = file.read(_READ).replace(b"\0", b" ")
    except OSError:
        return ""
    if (hide := redaction.made_for(keeper.orders)) is not None:
        begun = hide.feed(line)
        line = begun + (hide.end() if len(line) < _READ else b"")  # at the read limit, drop an incomplete secret
    return line[:_SHOWN].decode("utf-8", "replace").strip()
