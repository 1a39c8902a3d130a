"""Webhooks: signatures, and the events of pushes and pull requests."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from debug_server.dispatch.webhooks import event_of, verify
from debug_server.errors import AccessError, InvalidInputError


def test_hooks_need_the_right_signature() -> None:
    """No secret, no signature, a wrong one, another body: refused."""
    body = b'{"after": "abc"}'
    good = "sha256=" + hmac.new(b"secret", body, hashlib.sha256).hexdigest()
    verify("secret", body, good)
    for secret, data, signature in [
        (None, body, good),
        ("", body, good),
        ("secret", body, None),
        ("secret", body, "sha1=x"),
        ("secret", body, "sha256=" + "0" * 64),
        ("secret", body + b" ", good),
        ("other", body, good),
    ]:
        with pytest.raises(AccessError):
            verify(secret, data, signature)


def test_a_push_tells_its_paths() -> None:
    """Added, modified and removed of every commit, each once; a ping asks for nothing."""
    with pytest.raises(InvalidInputError, match="not JSON"):
        event_of("repo", "push", b"[" * 200_000)
    commits = [{"added": ["a"], "modified": ["b"], "removed": []}, {"added": [], "modified": ["a"], "removed": ["c"]}]
    event = event_of(
        "repo", "push", json.dumps({"ref": "refs/heads/main", "after": "f" * 40, "commits": commits}).encode()
    )
    assert event is not None and event.paths == ("a", "b", "c") and event.task_id == "f" * 40
    request = event_of("repo", "pull_request", json.dumps({"number": 7, "action": "opened"}).encode())
    assert request is not None and (request.task_id, request.event_type) == ("pr-7", "pr")
    assert event_of("repo", "ping", b"{}") is None
    deleted = event_of("repo", "push", json.dumps({"after": "0" * 40, "commits": []}).encode())
    assert deleted is not None and deleted.paths == ()


@pytest.mark.parametrize(
    ("kind", "body", "what"),
    [
        ("push", "[]", "JSON object"),
        ("push", "nonsense", "not JSON"),
        ("push", "{}", "'after'"),
        ("push", '{"after": 5, "commits": []}', "'after'"),
        ("push", '{"after": "abc"}', "'commits'"),
        ("push", '{"after": "abc", "commits": 5}', "'commits'"),
        ("push", '{"after": "abc", "commits": ["x"]}', "'commits'"),
        ("push", '{"after": "abc", "commits": [{"added": "x"}]}', "'added'"),
        ("push", '{"after": "abc", "commits": [{"added": [5]}]}', "'added'"),
        ("pull_request", "{}", "'number'"),
        ("", '{"after": "abc", "commits": []}', "X-GitHub-Event"),
    ],
)
def test_a_body_that_is_no_push_runs_nothing(kind: str, body: str, what: str) -> None:
    """A signed delivery that makes no sense is refused with what is wrong, and never a push without paths."""
    with pytest.raises(InvalidInputError, match=what):
        event_of("repo", kind, body.encode())
