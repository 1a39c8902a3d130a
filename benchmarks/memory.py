"""Memory that a keeper adds while its command idles."""

from __future__ import annotations

from benchmarks import processes
from benchmarks.command_setup import open_command_setup
from benchmarks.figures import Figure, Result, Size, Skipped, at_most
from debug_server.runner.spec import CommandSpec

_MIB = 1 << 20
_KEEPERS = {Size.FULL: 50, Size.QUICK: 10, Size.SMALLEST: 2}


def measure(size: Size) -> list[Result]:
    """Private memory of each keeper, the largest counting."""
    with (
        open_command_setup(kill_grace=0.1) as setup,
        setup.running(CommandSpec(["sleep", "600"]), _KEEPERS[size]),
    ):
        pids = processes.keepers(_KEEPERS[size])
        try:
            private = sorted(processes.private_bytes(pid) for pid in pids)
        except PermissionError as error:
            return [Skipped(name="private_per_keeper", reason=f"/proc/PID/smaps_rollup: {error.strerror}")]
        resident = max(processes.resident_bytes(pid) for pid in pids)
    middle = private[len(private) // 2]
    facts = {"keepers": len(pids), "median_mib": round(middle / _MIB, 2), "resident_mib": round(resident / _MIB, 2)}
    return [
        Figure(name="private_per_keeper", value=round(private[-1] / _MIB, 2), unit="MiB", bar=at_most(4), facts=facts)
    ]
