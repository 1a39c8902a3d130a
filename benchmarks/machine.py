"""What the machine is and how busy it is: figures mean nothing without."""

from __future__ import annotations

import os
import platform
from typing import Any

QUIET = 0.5  # a load average above this spoils figures


def describe() -> dict[str, Any]:
    """The machine, for the report."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": len(os.sched_getaffinity(0)),
        "root": os.geteuid() == 0,
    }


def load() -> list[float]:
    """The load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def warning(moment: str, averages: list[float]) -> str | None:
    """What to say when others use the machine too; at the end we are the load ourselves."""
    if averages[0] <= QUIET:
        return None
    return f"warning: load average {averages[0]:g} at the {moment} is above {QUIET:g}: " + (
        "others use this machine, take these figures again when it is quiet"
        if moment == "start"
        else "in part that is the benchmarks themselves"
    )
