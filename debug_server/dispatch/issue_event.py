"""One event as it was emitted, and its checks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from debug_server.errors import InvalidInputError, PayloadTooLargeError

MAX_PAYLOAD_BYTES = 1 << 20
_MAX_WORD, _MAX_FIELD = 200, 4096
_MAX_PATHS, _MAX_PATH = 100_000, 4096
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_PATH = re.compile(r"[\x00\ud800-\udfff]")
_MANY_PATHS, _LONG_PAYLOAD = 1000, 1 << 16
RESERVED = "runner."  # event types of the server itself


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueEvent:
    """Something happened to a task in a repository."""

    task_id: str
    event_type: str
    repo_name: str
    field: str = ""
    payload: str = ""  # JSON text, as a rule
    timestamp: str = ""  # ISO 8601 in UTC; empty: now
    paths: tuple[str, ...] = ()  # of push and pr: the changed files

    @property
    def large(self) -> bool:
        """Whether checking it takes too long for the event loop."""
        return len(self.paths) > _MANY_PATHS or len(self.payload) > _LONG_PAYLOAD


def checked(event: IssueEvent) -> IssueEvent:
    """The event with a timestamp; InvalidInputError names the wrong field."""
    _check_name(event.event_type, "event_type", "say what happened, for example created")
    _check_name(event.task_id, "task_id", "name the card or the commit")
    _check_name(event.repo_name, "repo_name", "name a repository of config/repos.yml")
    if event.event_type.startswith(RESERVED):
        raise InvalidInputError(f"event_type {event.event_type!r} is reserved for the server: choose another one")
    if _CONTROL.search(event.field) or len(event.field) > _MAX_FIELD:
        raise InvalidInputError(
            f"field {event.field[:40]!r} contains a control character or more than {_MAX_FIELD} characters"
        )
    size = len(event.payload.encode("utf-8", "surrogatepass"))
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLargeError(
            f"the payload has {size} bytes (limit {MAX_PAYLOAD_BYTES}): put it into a file and send its name"
        )
    return IssueEvent(
        task_id=event.task_id,
        event_type=event.event_type,
        repo_name=event.repo_name,
        field=event.field,
        payload=event.payload.encode("utf-8", "replace").decode(),
        timestamp=_timestamp(event.timestamp),
        paths=_paths(event.paths or _paths_in(event)),
    )


def _paths_in(event: IssueEvent) -> tuple[str, ...]:
    """The paths in the payload of a push or pull request."""
    if event.event_type not in ("push", "pr"):
        return ()
    try:
        found = json.loads(event.payload)
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        return ()
    paths = found.get("paths") if isinstance(found, dict) else None
    return tuple(str(path) for path in paths) if isinstance(paths, list) else ()


def now_text() -> str:
    """The current time."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check_name(value: str, name: str, advice: str) -> None:
    if not value.strip():
        raise InvalidInputError(f"{name} is empty: {advice}")
    if len(value) > _MAX_WORD:
        raise InvalidInputError(f"{name} {value[:40]!r} is longer than {_MAX_WORD} characters")
    if _CONTROL.search(value):
        raise InvalidInputError(f"{name} {value!r} contains a control character: {advice}")


def _timestamp(text: str) -> str:
    if not text:
        return now_text()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(
            f"timestamp {text[:60]!r} is not ISO 8601: correct it, or omit it for the current time"
        ) from error
    return moment.isoformat().replace("+00:00", "Z")


def _paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Checked, never shortened: a missing path could be the one that a trigger matches."""
    if len(paths) > _MAX_PATHS:
        raise PayloadTooLargeError(f"{len(paths)} paths changed (limit {_MAX_PATHS}): send them in several events")
    for path in paths:
        if (
            path.startswith("/")
            or ".." in path.split("/")
            or _NOT_IN_PATH.search(path)
            or not 0 < len(path) <= _MAX_PATH
        ):
            raise InvalidInputError(
                f"path {path[:80]!r} must be text of 1 to {_MAX_PATH} characters, relative to the repository's root, "
                "without '..'"
            )
    return tuple(paths)
