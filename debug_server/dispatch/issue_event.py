"""One event as it was emitted: what is checked before anything is done about it."""

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
_NO_PATH = re.compile(r"[\x00\ud800-\udfff]")  # what no path of a repository can be told with
_MANY_PATHS, _LONG_PAYLOAD = 1000, 1 << 16
RESERVED = "runner."  # what runners do is ours to tell


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueEvent:
    """Something happened to a task in a repository."""

    task_id: str
    event_type: str
    repo_name: str
    field: str = ""
    payload: str = ""  # JSON text, as a rule
    timestamp: str = ""  # ISO 8601 in UTC; empty: now
    paths: tuple[str, ...] = ()  # of push and pr: what changed

    @property
    def large(self) -> bool:
        """Whether looking through it takes long enough to be done beside the server's loop."""
        return len(self.paths) > _MANY_PATHS or len(self.payload) > _LONG_PAYLOAD


def checked(event: IssueEvent) -> IssueEvent:
    """The event with its time; InvalidInputError names the wrong field."""
    _word(event.event_type, "event_type", "say what happened, for example created")
    _word(event.task_id, "task_id", "name the card or the commit")
    _word(event.repo_name, "repo_name", "name a repository of config/repos.yml")
    if event.event_type.startswith(RESERVED):
        raise InvalidInputError(f"event_type {event.event_type!r} is reserved: only the server tells what runners do")
    if _CONTROL.search(event.field) or len(event.field) > _MAX_FIELD:
        raise InvalidInputError(
            f"field {event.field[:40]!r} holds a control character or more than {_MAX_FIELD} characters"
        )
    size = len(event.payload.encode("utf-8", "surrogatepass"))
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLargeError(
            f"the payload has {size} bytes and {MAX_PAYLOAD_BYTES} may: put it into a file and send its name"
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
    """A push that came without a list of its own may have one in its payload."""
    if event.event_type not in ("push", "pr"):
        return ()
    try:
        found = json.loads(event.payload)
    except (ValueError, RecursionError):  # not JSON, or nested deeper than anybody means it
        return ()
    paths = found.get("paths") if isinstance(found, dict) else None
    return tuple(str(path) for path in paths) if isinstance(paths, list) else ()


def now_text() -> str:
    """This moment."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(value: str, name: str, advice: str) -> None:
    if not value.strip():
        raise InvalidInputError(f"{name} is empty: {advice}")
    if len(value) > _MAX_WORD:
        raise InvalidInputError(f"{name} {value[:40]!r} is longer than {_MAX_WORD} characters")
    if _CONTROL.search(value):
        raise InvalidInputError(f"{name} {value!r} holds a control character: {advice}")


def _timestamp(text: str) -> str:
    if not text:
        return now_text()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(f"timestamp {text[:60]!r} is not ISO 8601: leave it out for now") from error
    return moment.isoformat().replace("+00:00", "Z")


def _paths(paths: Sequence[str]) -> tuple[str, ...]:
    """All of them: a path that was left out could be the one that a trigger waits for."""
    if len(paths) > _MAX_PATHS:
        raise PayloadTooLargeError(
            f"{len(paths)} paths changed and one event may name {_MAX_PATHS}: send them in several events"
        )
    for path in paths:
        if path.startswith("/") or ".." in path.split("/") or _NO_PATH.search(path) or not 0 < len(path) <= _MAX_PATH:
            raise InvalidInputError(
                f"path {path[:80]!r} must be text of 1 to {_MAX_PATH} characters, relative to the repository's root, "
                "without '..'"
            )
    return tuple(paths)
