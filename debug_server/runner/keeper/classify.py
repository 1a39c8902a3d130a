"""Classifies how a command ended, from what its keeper observed."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Stop:
    """Why the keeper itself ended the command."""

    __slots__ = ("limit", "message", "reason")

    def __init__(self, reason: str, message: str, limit: str | None = None) -> None:
        self.reason, self.message, self.limit = reason, message, limit


class Observations:
    """Everything that the classification depends on."""

    __slots__ = ("cpu_limit", "file_size_limit", "oom_kills", "spawn_error", "status", "stop")

    def __init__(
        self,
        *,
        status: int | None,  # the leader's wait status; None when it never ran
        stop: Stop | None = None,
        oom_kills: int = 0,
        spawn_error: str | None = None,
        file_size_limit: int | None = None,
        cpu_limit: float | None = None,
    ) -> None:
        self.status, self.stop, self.oom_kills, self.spawn_error = status, stop, oom_kills, spawn_error
        self.file_size_limit, self.cpu_limit = file_size_limit, cpu_limit


def classify(seen: Observations) -> dict[str, Any]:
    """The reason, exit code, signal and sentence of an exit record.

    The order matters: a failed start, then the kernel's OOM counter, then what the keeper did, then what the program
    did. A shell that returns 0 after its child was killed for memory did not succeed.
    """
    if seen.spawn_error is not None:
        return _record("spawn_failed", seen.spawn_error)
    if seen.oom_kills and (seen.stop is None or seen.stop.reason != "cancelled"):
        count = "a process" if seen.oom_kills == 1 else f"{seen.oom_kills} processes"
        return _ending(seen, "out_of_memory", f"out of memory: the kernel killed {count}", "memory_bytes")
    if seen.stop is not None:
        return _record(seen.stop.reason, seen.stop.message, seen.stop.limit)
    return _own_end(seen)


def _own_end(seen: Observations) -> dict[str, Any]:
    status = seen.status or 0
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU and seen.cpu_limit is not None:
            return _ending(seen, "limit_exceeded", f"used more than {seen.cpu_limit:g} cpu seconds", "cpu_seconds")
        if number == signal.SIGXFSZ and seen.file_size_limit is not None:
            message = f"wrote a file larger than {seen.file_size_limit} bytes"
            return _ending(seen, "limit_exceeded", message, "file_size_bytes")
        return _ending(seen, "signaled", f"ended by {_signal_name(number)}")
    code = os.WEXITSTATUS(status)
    return _ending(seen, "nonzero_exit" if code else "exited", f"exited with status {code}")


def _ending(seen: Observations, reason: str, message: str, limit: str | None = None) -> dict[str, Any]:
    record = _record(reason, message, limit)
    if seen.status is not None:
        if os.WIFSIGNALED(seen.status):
            record["signal"] = os.WTERMSIG(seen.status)
        else:
            record["exit_code"] = os.WEXITSTATUS(seen.status)
    return record


def _record(reason: str, message: str, limit: str | None = None) -> dict[str, Any]:
    return {"reason": reason, "message": message, "limit": limit, "exit_code": None, "signal": None}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
