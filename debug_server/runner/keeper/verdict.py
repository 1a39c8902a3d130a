"""How a command ended, from what its keeper saw; pure."""

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


class Sight:
    """Everything the verdict rests on."""

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


def judge(sight: Sight) -> dict[str, Any]:
    """The reason, exit code, signal and sentence of an exit record.

    The order is the rule: what made it impossible to start, then what the kernel's counter proves, then what we
    did, then what the program did. A shell that returns 0 after its child was killed for memory did not succeed.
    """
    if sight.spawn_error is not None:
        return _record("spawn_failed", sight.spawn_error)
    if sight.oom_kills and (sight.stop is None or sight.stop.reason != "cancelled"):
        count = "a process" if sight.oom_kills == 1 else f"{sight.oom_kills} processes"
        return _ending(sight, "out_of_memory", f"the kernel killed {count} of it for memory", "memory_bytes")
    if sight.stop is not None:
        return _record(sight.stop.reason, sight.stop.message, sight.stop.limit)
    return _own_end(sight)


def _own_end(sight: Sight) -> dict[str, Any]:
    status = sight.status or 0
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU and sight.cpu_limit is not None:
            return _ending(sight, "limit_exceeded", f"used more than {sight.cpu_limit:g} cpu seconds", "cpu_seconds")
        if number == signal.SIGXFSZ and sight.file_size_limit is not None:
            message = f"wrote a file larger than {sight.file_size_limit} bytes"
            return _ending(sight, "limit_exceeded", message, "file_size_bytes")
        return _ending(sight, "signaled", f"ended by {_signal_name(number)}")
    code = os.WEXITSTATUS(status)
    return _ending(sight, "nonzero_exit" if code else "exited", f"exited with status {code}")


def _ending(sight: Sight, reason: str, message: str, limit: str | None = None) -> dict[str, Any]:
    record = _record(reason, message, limit)
    if sight.status is not None:
        if os.WIFSIGNALED(sight.status):
            record["signal"] = os.WTERMSIG(sight.status)
        else:
            record["exit_code"] = os.WEXITSTATUS(sight.status)
    return record


def _record(reason: str, message: str, limit: str | None = None) -> dict[str, Any]:
    return {"reason": reason, "message": message, "limit": limit, "exit_code": None, "signal": None}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
