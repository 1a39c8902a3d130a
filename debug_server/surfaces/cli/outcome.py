"""Reports how a command ended: one line for people, one exit status for programs.

| status | meaning |
|---|---|
| the command's own | it ended by itself |
| 2 | the command line is wrong: nothing was done |
| 123 | it exceeded a limit other than time or memory |
| 124 | it ran, or printed nothing, for too long |
| 125 | debug-server failed: environment, patch, lease, folders or keeper |
| 127 | the program could not be started |
| 128 + n | it was ended by signal n (137 also when it ran out of memory, 130 when it was cancelled, 141 when the
reader of its output closed the pipe) |
"""

from __future__ import annotations

from pathlib import Path

from debug_server.model import ExitReason, ExitRecord
from debug_server.surfaces.cli.output import without_controls

WRONG_USE = 2
FAILURE = 125
CANCELLED = 130
BROKEN_PIPE = 141
_STATUS = {
    ExitReason.TIMED_OUT: 124,
    ExitReason.IDLE_TIMED_OUT: 124,
    ExitReason.LIMIT_EXCEEDED: 123,
    ExitReason.OUT_OF_MEMORY: 137,
    ExitReason.CANCELLED: CANCELLED,
    ExitReason.SPAWN_FAILED: 127,
}


def exit_status(record: ExitRecord) -> int:
    """The exit status of the program that ran the command."""
    if record.reason in (ExitReason.EXITED, ExitReason.NONZERO_EXIT):
        return record.exit_code or 0
    if record.reason is ExitReason.SIGNALED:
        return 128 + (record.signal or 0)
    if record.reason is ExitReason.SPAWN_FAILED and not record.mechanism:
        return FAILURE  # no keeper received it: a folder or a keeper could not be created
    return _STATUS.get(record.reason, FAILURE)


def summary(
    record: ExitRecord,
    log_path: Path | None,
    session_id: int | None = None,
    *,
    command_id: int | None = None,
    with_sentence: bool = True,
) -> str:
    """One line: reason, sentence, cost, where the log is, which command it was and in which session it ran."""
    parts = [f"{record.wall_seconds:.2f} s", f"cpu {record.cpu_seconds:.2f} s"]
    if record.peak_memory_bytes:
        parts.append(f"peak {human_size(record.peak_memory_bytes)}")
    missing = [name for name, item in record.limits.items() if item["by"] is None]
    if missing:
        parts.append(f"NOT enforced: {', '.join(missing)}")
    parts += [f"{name} only up to {item['in_force']}" for name, item in record.limits.items() if "in_force" in item]
    if log_path is not None:
        parts.append(f"log {log_path}")
    if command_id is not None:
        parts.append(f"command {command_id}")
    if session_id is not None:
        parts.append(f"session {session_id}")
    sentence = f": {without_controls(record.message)}" if with_sentence else ": see above"
    return f"[debug-server] {record.reason.value}{sentence} ({', '.join(parts)})"


def human_size(count: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
