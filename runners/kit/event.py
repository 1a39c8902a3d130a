"""The event of a runner program: JSON on standard input."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

from runners.kit.errors import JobError
from runners.kit.text import single_line

MAX_BYTES = 32 << 20  # larger than every event; an endless pipe is not read for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; all its texts are untrusted."""

    task_id: str = ""
    repo_name: str = ""
    event_type: str = ""
    field: str = ""
    payload: str = ""
    timestamp: str = ""
    skill: str = ""
    settings: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )  # the runner's own keys: scan_patterns, gitignore_profile

    @property
    def details(self) -> Mapping[str, Any]:
        """The payload, if it is a JSON object; otherwise empty."""
        return self._object() or {}

    @property
    def plain(self) -> str:
        """The payload, if it is not a JSON object; otherwise empty."""
        return self.payload if self._object() is None else ""

    def _object(self) -> dict[str, Any] | None:
        try:
            value = json.loads(self.payload)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    @property
    def when(self) -> datetime:
        """The event's time, so that a second run writes the same; without one, the current time."""
        try:
            moment = datetime.fromisoformat(self.timestamp)
        except ValueError:
            return datetime.now(UTC)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


TEXTS = ("task_id", "repo_name", "event_type", "field", "payload", "timestamp", "skill")


def read_event(stream: BinaryIO) -> Event:
    """Read the event from ``stream``; unknown members are the runner's settings."""
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise JobError(f"the event is larger than {MAX_BYTES >> 20} MiB")
    if not data.strip():
        raise JobError("no event on standard input: expected one JSON object with task_id, event_type and payload")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JobError(f"the event on standard input is not JSON: {single_line(str(error))}") from error
    if not isinstance(value, dict):
        raise JobError(f"the event on standard input is a JSON {type(value).__name__}, not an object")
    return Event(
        **{name: _text(name, value.get(name)) for name in TEXTS},
        settings={name: item for name, item in value.items() if name not in TEXTS},
    )


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if name == "payload":
        return json.dumps(value, ensure_ascii=False)
    raise JobError(f"the event's {name} is a {type(value).__name__}, not a string")


def changed_paths(event: Event) -> list[str]:
    """The files that a push or pull request changed; empty for other events."""
    paths = event.settings.get("paths")
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []
