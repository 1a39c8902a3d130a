"""The checks of an emitted event."""

from __future__ import annotations

import pytest

from debug_server.dispatch.issue_event import MAX_PAYLOAD_BYTES, IssueEvent, checked
from debug_server.errors import InvalidInputError


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"event_type": ""}, "event_type"),
        ({"event_type": "  "}, "event_type"),
        ({"task_id": ""}, "task_id"),
        ({"task_id": "a\x00b"}, "control"),
        ({"task_id": "a\nb"}, "control"),
        ({"task_id": "x" * 500}, "longer"),
        ({"event_type": "runner.exited"}, "reserved"),
        ({"payload": "x" * (10 << 20)}, str(MAX_PAYLOAD_BYTES)),
        ({"timestamp": "yesterday"}, "ISO"),
        ({"paths": ("../etc/passwd",)}, "relative"),
        ({"paths": ("/etc/passwd",)}, "relative"),
        ({"paths": ("a\ud800",)}, "text"),
        ({"paths": ("x" * 5000,)}, "4096"),
        ({"paths": ("",)}, "1 to"),
        ({"paths": ("x",) * 100_001}, "100001 paths changed"),
        ({"event_type": "push", "payload": '{"paths": ["' + 'x", "' * 100_000 + 'x"]}'}, "100001 paths changed"),
    ],
)
def test_events_that_make_no_sense(fields: dict[str, object], word: str) -> None:
    """The message names the field."""
    good: dict[str, object] = {"task_id": "T", "event_type": "created", "repo_name": "here"}
    with pytest.raises(InvalidInputError, match=word):
        checked(IssueEvent(**{**good, **fields}))  # type: ignore[arg-type]


def test_a_payload_nested_too_deeply_has_no_paths() -> None:
    """What json gives up on is a payload like any other text."""
    event = IssueEvent(task_id="T", event_type="push", repo_name="here", payload="[" * 200_000)
    assert checked(event).paths == ()
