"""The entries of the stream: stored events of runs, and output, as watchers receive them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from debug_server.dispatch import call_exits
from debug_server.dispatch.dispatcher import REFUSED, SKIPPED
from debug_server.dispatch.log_lines import Lines
from debug_server.model import Command, Event, ExitReason
from debug_server.service.logs import StreamTails

_RAN = (ExitReason.EXITED, ExitReason.NONZERO_EXIT, ExitReason.SIGNALED)
_TIMEOUTS = (ExitReason.TIMED_OUT, ExitReason.IDLE_TIMED_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the stream."""

    task_id: str
    repo_name: str
    event_type: str
    field: str
    payload: str
    timestamp: str
    cursor: str = ""


def entries_of(event: Event, command: Command | None, record: Mapping[str, Any]) -> list[Entry]:
    """The entries of a stored event other than the end of a run."""
    if event.kind == "command.pending":
        return [*_emitted(record), _entry(record, "runner.queued", event.created_at, _identity(record, command))]
    if event.kind == "command.started":
        return [_entry(record, "runner.started", event.created_at, _identity(record, command))]
    if event.kind in (SKIPPED, REFUSED):
        kind = "runner.skipped" if event.kind == SKIPPED else "runner.error"
        payload = {**_identity(record, None), "ok": False, "reason": record["reason"]}
        return [*_emitted(record), _entry(record, kind, event.created_at, payload)]
    return []


def needs_log(command: Command, record: Mapping[str, Any]) -> bool:
    """Whether the entry of a run's end shows something of its output."""
    return command.exit_reason is not ExitReason.EXITED or record["executor"] == "grpc"


def end_entry(event: Event, command: Command, record: Mapping[str, Any], ends: StreamTails) -> Entry:
    """The entry of a run's end; ``ends`` is the end of its output."""
    reason, code, exit_record = command.exit_reason, command.exit_code, command.exit
    payload: dict[str, Any] = {
        **_identity(record, command),
        "ok": reason is ExitReason.EXITED,
        "reason": reason.value if reason is not None else None,
        "exit_code": code,
        "signal": exit_record.signal if exit_record is not None else None,
        "seconds": round(exit_record.wall_seconds, 3) if exit_record is not None else None,
        "message": exit_record.message if exit_record is not None else "",
    }
    if not payload["ok"]:
        payload["stderr"] = ends.stderr or ""
    kind = "runner.timeout" if reason in _TIMEOUTS else "runner.exited" if reason in _RAN else "runner.error"
    if record["executor"] == "grpc":
        payload["response"] = _response(ends.stdout or "")
        if code in (call_exits.UNAVAILABLE, call_exits.PROTOCOL, call_exits.UNCONFIGURED):
            kind = "runner.error"
        elif code == call_exits.DEADLINE:
            kind, payload["reason"] = "runner.timeout", ExitReason.TIMED_OUT.value
    return _entry(record, kind, event.created_at, payload)


def output_entry(record: Mapping[str, Any], command_id: int, lines: Lines) -> Entry:
    """The entry of output lines, with the offset of their bytes in the command's log."""
    payload = {
        "chunk": lines.data.decode("utf-8", "replace"),
        "offset": lines.offset,
        "stream": lines.stream,
        "runner": record["runner"],
        "command_id": command_id,
    }
    return _entry(record, f"runner.{lines.stream}", lines.timestamp, payload)


def _emitted(record: Mapping[str, Any]) -> list[Entry]:
    """The emitted event itself, once for all the runners that it starts."""
    if not record["first"]:
        return []
    names = ("task_id", "repo_name", "event_type", "field", "payload", "timestamp")
    return [Entry(**{name: record[name] for name in names})]


def _entry(record: Mapping[str, Any], kind: str, moment: datetime, payload: Mapping[str, Any]) -> Entry:
    return Entry(
        task_id=record["task_id"],
        repo_name=record["repo_name"],
        event_type=kind,
        field=record["runner"],
        payload=json.dumps(payload),
        timestamp=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )


def _identity(record: Mapping[str, Any], command: Command | None) -> dict[str, Any]:
    known = {name: record[name] for name in ("runner", "skill", "executor", "event_type")}
    return known if command is None else {**known, "command_id": command.id}


def _response(stdout: str) -> Any:
    try:
        return json.loads(stdout)
    except (ValueError, RecursionError):  # the cut end of deeply nested JSON exceeds the parser's depth
        return None
