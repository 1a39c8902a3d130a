"""Memory and processor time of processes, as the kernel counts them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from debug_server.runner.keeper.tree import descendants

_PRIVATE = ("Private_Clean", "Private_Dirty")
_FOUND_SECONDS = 30.0
_OF_PROCESS = 2  # the kind of clock that clock_getcpuclockid(3) names


def keepers(at_least: int = 1) -> list[int]:
    """Every keeper that this process has had started, at work or waiting.

    The kernel's lists of children miss some while others end, so that fewer than there must be are counted again.
    """
    deadline = time.monotonic() + _FOUND_SECONDS
    while len(found := [pid for pid in descendants(os.getpid()) if _name(pid) == "ds-keeper"]) < at_least:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} keepers were found within {_FOUND_SECONDS:g} s, not {at_least}")
        time.sleep(0.01)
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def private_bytes(pid: int) -> int:
    """Memory that this process shares with nobody."""
    return sum(_kilobytes(Path(f"/proc/{pid}/smaps_rollup"), name) for name in _PRIVATE) * 1024


def resident_bytes(pid: int) -> int:
    """Memory that this process uses now, shared pages included."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmRSS") * 1024


def peak_bytes(pid: int) -> int:
    """The most that this process ever used, shared pages included."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM") * 1024


def forget_peak() -> None:
    """Count this process's own peak from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def _kilobytes(path: Path, name: str) -> int:
    """0 for a process that has ended."""
    try:
        lines = path.read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in lines:
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def cpu_seconds(pid: int) -> float:
    """Processor time that this process has used, without its children's; 0 for one that has ended."""
    try:
        return time.clock_gettime(~pid << 3 | _OF_PROCESS)  # in nanoseconds; /proc counts hundredths of a second
    except OSError:
        return 0.0
