"""What a program is told: one event, as JSON on its standard input."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

from runners.kit.refusal import Refusal
from runners.kit.words import single_line

LARGEST = 32 << 20  # an Emit is smaller; a pipe that never ends is not read for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; every text of it comes from outside."""

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
        """The payload as a JSON object; empty when it is anything else."""
        return self._object() or {}

    @property
    def plain(self) -> str:
        """The payload as text; empty when it is a JSON object."""
        return self.payload if self._object() is None else ""

    def _object(self) -> dict[str, Any] | None:
        try:
            value = json.loads(self.payload)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    @property
    def when(self) -> datetime:
        """The event's own time, so that running it again writes the same; now when it has none."""
        try:
            moment = datetime.fromisoformat(self.timestamp)
        except ValueError:
            return datetime.now(UTC)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


TEXTS = ("task_id", "repo_name", "event_type", "field", "payload", "timestamp", "skill")


def read_event(stream: BinaryIO) -> Event:
    """The event on ``stream``; members that are not known here are the runner's settings."""
    data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise Refusal(f"the event is larger than {LARGEST >> 20} MiB")
    if not data.strip():
        raise Refusal("no event on standard input: expected one JSON object with task_id, event_type and payload")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refusal(f"the event on standard input is not JSON: {single_line(str(error))}") from error
    if not isinstance(value, dict):
        raise Refusal(f"the event on standard input is a JSON {type(value).__name__}, not an object")
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
    raise Refusal(f"the event's {name} is a {type(value).__name__}, not a text")


def changed_paths(event: Event) -> list[str]:
    """The paths that a push or pull request changed; empty for every other event."""
    paths = event.settings.get("paths")
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []
