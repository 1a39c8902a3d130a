"""The exit record of a command: how it ended, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ExitReason(StrEnum):
    """Why a command ended."""

    EXITED = "exited"  # by itself with status 0
    NONZERO_EXIT = "nonzero_exit"  # by itself with another status
    SIGNALED = "signaled"  # by a signal that the keeper did not send
    TIMED_OUT = "timed_out"  # wall clock limit
    IDLE_TIMED_OUT = "idle_timed_out"  # no output for too long
    OUT_OF_MEMORY = "out_of_memory"  # the cgroup's counter says so
    LIMIT_EXCEEDED = "limit_exceeded"  # output bytes, cpu seconds, file size
    SANDBOX_DENIED = "sandbox_denied"
    CANCELLED = "cancelled"  # on request
    SPAWN_FAILED = "spawn_failed"  # the program could not be started
    ENV_FAILED = "env_failed"
    PATCH_FAILED = "patch_failed"
    LEASE_LOST = "lease_lost"
    LOST = "lost"  # its keeper died; the tree was removed


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """The result of one command, written by its keeper."""

    reason: ExitReason
    exit_code: int | None = None  # only when the program itself ended with a status
    signal: int | None = None
    message: str = ""  # one sentence for users
    limit: str | None = None  # which limit ended it, for limit_exceeded and the timeouts
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    mechanism: str = ""  # what contained the process tree: cgroup-v2, cgroup-v1, pid-namespace, session
    limits: dict[str, Any] = field(default_factory=dict)  # name -> {"asked": …, "by": …|None}
    isolation: dict[str, Any] = field(default_factory=dict)  # what was asked, what was in force, and why not more
    evidence: dict[str, Any] = field(default_factory=dict)  # counters, last lines, processes at the kill

    def to_json(self) -> dict[str, Any]:
        """A plain mapping, safe to encode."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ExitRecord:
        """The inverse of ``to_json``; fields of a newer version are dropped."""
        known = {name: data[name] for name in cls.__slots__ if name in data}
        return cls(**{**known, "reason": ExitReason(data["reason"])})
