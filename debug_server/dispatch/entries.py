"""What the stream tells: the store's events of our commands and our own, in the words of runners."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from debug_server.dispatch import call_exits
from debug_server.dispatch.dispatcher import REFUSED, SKIPPED
from debug_server.dispatch.tail import Lines
from debug_server.model import Command, Event, ExitReason
from debug_server.runner.log_reader import LogReader

_RAN = (ExitReason.EXITED, ExitReason.NONZERO_EXIT, ExitReason.SIGNALED)
_TIMEOUTS = (ExitReason.TIMED_OUT, ExitReason.IDLE_TIMED_OUT)
_TAIL_BYTES, _TAIL_LOOK = 4096, 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event of the stream."""

    task_id: str
    repo_name: str
    event_type: str
    field: str
    payload: str
    timestamp: str
    cursor: str = ""


def entries_of(event: Event, command: Command | None, record: Mapping[str, Any]) -> list[Entry]:
    """What one stored event tells."""
    if event.kind == "command.pending":
        return [*_emitted(record), _told(record, "runner.queued", event.created_at, _identity(record, command))]
    if event.kind == "command.started":
        return [_told(record, "runner.started", event.created_at, _identity(record, command))]
    if event.kind == "command.finished" and command is not None:
        kind, payload = _ending(record, command)
        return [_told(record, kind, event.created_at, payload)]
    if event.kind in (SKIPPED, REFUSED):
        kind = "runner.skipped" if event.kind == SKIPPED else "runner.error"
        payload = {**_identity(record, None), "ok": False, "reason": record["reason"]}
        return [*_emitted(record), _told(record, kind, event.created_at, payload)]
    return []


def entry_of_lines(record: Mapping[str, Any], command_id: int, lines: Lines) -> Entry:
    """Output, with the offset of its bytes in the command's log."""
    payload = {
        "chunk": lines.data.decode("utf-8", "replace"),
        "offset": lines.offset,
        "stream": lines.stream,
        "runner": record["runner"],
        "command_id": command_id,
    }
    return _told(record, f"runner.{lines.stream}", lines.timestamp, payload)


def _emitted(record: Mapping[str, Any]) -> list[Entry]:
    """The event itself, once for all the runners that act on it."""
    if not record["first"]:
        return []
    names = ("task_id", "repo_name", "event_type", "field", "payload", "timestamp")
    return [Entry(**{name: record[name] for name in names})]


def _told(record: Mapping[str, Any], kind: str, moment: datetime, payload: Mapping[str, Any]) -> Entry:
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


def _ending(record: Mapping[str, Any], command: Command) -> tuple[str, dict[str, Any]]:
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
        payload["stderr"] = tail_of(command, "stderr")
    if record["executor"] == "grpc":
        payload["response"] = _response(command)
        if code in (call_exits.UNAVAILABLE, call_exits.PROTOCOL, call_exits.UNCONFIGURED):
            return "runner.error", payload
        if code == call_exits.DEADLINE:
            return "runner.timeout", {**payload, "reason": ExitReason.TIMED_OUT.value}
    if reason in _TIMEOUTS:
        return "runner.timeout", payload
    return ("runner.exited" if reason in _RAN else "runner.error"), payload


def _response(command: Command) -> Any:
    try:
        return json.loads(tail_of(command, "stdout"))
    except (ValueError, RecursionError):  # cut off in a text of many brackets it is no JSON, but looks bottomless
        return None


def tail_of(command: Command, stream: str) -> str:
    """The last bytes of one stream, out of the last part of the log."""
    if command.log_path is None or not Path(command.log_path).exists():
        return ""
    with LogReader(command.log_path) as reader:
        segments = reader.read(max(0, reader.size() - _TAIL_LOOK), _TAIL_LOOK)
    data = b"".join(segment.data for segment in segments if segment.stream == stream)
    return data[-_TAIL_BYTES:].decode("utf-8", "replace")
