"""What is said of requests that are wrong: which part, which value, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from debug_server.app.parts import TASKS
from tests.servers import unmount_below
from tests.surfaces.http.serving import Served, answered, refused


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with host tasks."""
    root = tmp_path_factory.mktemp("shared")
    try:
        found = Served(root, parts={TASKS})
        try:
            yield found
        finally:
            found.close()
    finally:
        unmount_below(root)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/sesions", "/api/v1/sessions"),
        ("/api/v1/sesions", "/api/v1/sessions"),
        ("/api/v9/sessions", "/api/v1/sessions"),
        ("/api/sessions/7", "/api/v1/sessions/{session_id}"),
        ("/v1/sessions/7/commands", "/api/v1/sessions/{session_id}/commands"),
        ("/session/7/command", "/api/v1/sessions/{session_id}/commands"),
        ("/commands/7/logs", "/api/v1/commands/{command_id}/log"),
        ("/task/submit", "/api/v1/tasks/submit"),
    ],
)
def test_an_unknown_path_is_answered_with_the_nearest(shared: Served, path: str, meant: str) -> None:
    """Also below another version, or none; and with the page that has every path."""
    error = refused(shared.admin.get(path), 404, "not_found")
    assert error["message"] == f"there is no path {path!r}: did you mean {meant!r}? /docs has every path"


@pytest.mark.parametrize(("path", "status"), [("/ps", "active"), ("/history", "ended"), ("/api/v1/history", "ended")])
def test_a_command_of_the_command_line_is_no_path(shared: Served, path: str, status: str) -> None:
    """The route that lists these commands is named."""
    message = refused(shared.admin.get(path), 404, "not_found")["message"]
    assert f"use `GET /api/v1/commands?status={status}`" in message
    assert shared.admin.get(f"/api/v1/commands?status={status}").status_code == 200


def test_a_path_like_no_other(shared: Served) -> None:
    """Only the page is named, however long the path is."""
    for path in ("/0123456789", "/" + "x" * 10_000):
        assert refused(shared.admin.get(path), 404, "not_found")["message"].endswith(": /docs has every path")


def test_a_wrong_method_is_answered_with_the_right_ones(shared: Served) -> None:
    """In the message and in the header."""
    answer = shared.admin.put("/api/v1/sessions/7", json={})
    assert refused(answer, 405, "invalid_input")["message"].endswith("use DELETE or GET")
    assert answer.headers["allow"] == "DELETE, GET, HEAD"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/sessions?limt=5", "limt: unknown field: did you mean 'limit'?"),
        ("/sessions?limit=many", "limit: must be a whole number, not 'many', for example 100"),
        ("/sessions?limit=0", "limit: must be at least 1, not '0', for example 100"),
        ("/commands/1/log.ndjson?folow=true", "folow: unknown field: did you mean 'follow'?"),
        ("/commands/1/log.ndjson?follow=perhaps", "follow: must be true or false, not 'perhaps', for example true"),
        ("/commands/1/wait?command_id=2", "command_id is 1 in the path and '2' in the query: leave one out"),
        ("/sessions?limit=1&limit=2", "limit: given twice in the query: leave one out"),
        ("/sessions/seven", "session_id: must be a whole number, not 'seven', for example 1"),
        (
            "/tasks?status=done",
            "status: must be 'queued', 'running', 'success', 'failed' or 'canceled', not 'done', "
            'for example "running"',
        ),
        (
            "/tasks?status=faild",
            "status: must be 'queued', 'running', 'success', 'failed' or 'canceled', not 'faild': did you mean "
            "'failed'?",
        ),
        (
            "/commands?status=running,faild",
            "status: must be 'pending', 'running', 'succeeded', 'failed', 'cancelled', 'active' or 'ended', not "
            "'faild': did you mean 'failed'?",
        ),
        (
            "/sessions?status=finished",
            "status: must be 'pending', 'running', 'completed', 'failed', 'cancelled', 'open' or 'closed', not "
            "'finished', for example \"open\"",
        ),
        (f"/sessions?after={2**63}", f"after: must be at most {2**62}, not '{2**63}', for example 100"),
    ],
)
def test_a_wrong_query(shared: Served, path: str, said: str) -> None:
    """The parameter, the value, the reason, and an example or the right name."""
    error = refused(shared.admin.get(path), 422, "invalid_input")
    assert error["message"] == said
    assert error["field"] == said.partition(":")[0].partition(" ")[0]


def test_exec_where_a_session_s_id_belongs(shared: Served) -> None:
    """Both routes of exec are named."""
    for prefix in ("", "/api/v1"):
        message = refused(shared.admin.post(f"{prefix}/sessions/exec", json={}), 405, "invalid_input")["message"]
        assert "use `POST /api/v1/exec`, or in a session `POST /api/v1/sessions/{session_id}/exec`" in message


def test_lists_of_words_may_be_mixed(shared: Served) -> None:
    """Commas, a repeated name, and both."""
    for query in ("status=failed,succeeded&status=active", "status=failed&status=ended", "status=failed,ended"):
        answered(shared.admin.get(f"/api/v1/commands?{query}"), 200)


BODY = {"repository": "repo", "commit": "HEAD", "argv": ["true"]}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"argv": "ls -l"}, ['argv: must be a list, not \'ls -l\', for example ["pytest", "-q"]']),
        ({"argv": None}, ['argv: must be a list, for example ["pytest", "-q"]']),
        ({"priority": 5000, "tty": "yes"}, ["tty: must be true or false, not 'yes'", "priority: must be at most 1000"]),
        ({"env": {"SECRET": 5}}, ["env.SECRET: must be a string"]),
        ({"limits": {"timeout": "1m"}}, ["limits.timeout: must be a number, not '1m', for example 3600.0"]),
        ({"comit": "HEAD"}, ["comit: unknown field: did you mean 'commit'?"]),
    ],
)
def test_a_wrong_body(shared: Served, body: dict[str, Any], said: list[str]) -> None:
    """Every wrong field is told at once; a value that may be a secret is not repeated."""
    error = refused(shared.admin.post("/runs", json={**BODY, **body}), 422, "invalid_input")
    told = [f"{one['field']}: {one['reason']}" for one in error["violations"]]
    assert all(found.startswith(text) for found, text in zip(told, said, strict=True)), told
    assert error["message"] == "; ".join(told)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/sessions?repository=repo", "repository: unknown query parameter: send 'repository' in the JSON body"),
        ("/runs?wiat=5", "wiat: unknown field: did you mean 'wait'?"),
        ("/commands/1/cancel?force=true", "force: unknown query parameter: this request has no query parameters"),
        ("/tasks/submit?promt=x", "promt: unknown query parameter: send 'prompt' in the JSON body"),
    ],
)
def test_a_query_where_a_body_belongs(shared: Served, path: str, said: str) -> None:
    """Is refused instead of ignored."""
    assert refused(shared.admin.post(path, json={}), 422, "invalid_input")["message"] == said


def test_a_mode_that_is_misspelt(shared: Served) -> None:
    """Is answered with the nearest."""
    body = {"task_id": "a", "run_id": "b", "prompt": "x", "execution_mode": "no-workspce"}
    message = refused(shared.admin.post("/tasks/submit", json=body), 422, "invalid_input")["message"]
    assert message.endswith("or 'docker-sandbox', not 'no-workspce': did you mean 'no-workspace'?")


def test_a_body_that_is_no_object(shared: Served) -> None:
    """Is told by its kind; so is one that is no JSON."""
    for body, kind in ((b"[]", "an array"), (b"null", "null"), (b'"x"', "a string"), (b"5", "a number")):
        answer = shared.admin.post("/runs", content=body, headers={"Content-Type": "application/json"})
        message = refused(answer, 422, "invalid_input")["message"]
        assert message == f"the body must be a JSON object, not {kind}"
    answer = shared.admin.post("/runs", content=b"{argv", headers={"Content-Type": "application/json"})
    assert "the body is not JSON: " in refused(answer, 422, "invalid_input")["message"]


def test_a_scope_that_is_missing(shared: Served) -> None:
    """The message names the scope and the command that makes a token with it."""
    reader = shared.client(["sessions:read"])
    message = refused(reader.post("/runs", json=BODY), 403, "forbidden")["message"]
    assert "lacks the scope 'commands:write'" in message
    assert "debug-server token create NAME --scope commands:write" in message


@pytest.mark.parametrize("data", ["?", "\N{SNOWMAN}"])
def test_data_that_is_no_base64(shared: Served, data: str) -> None:
    """Is refused, also where it is not even ASCII."""
    session = shared.session()
    command = shared.submit(session, "cat", stdin=True)
    body = {"write_id": "1", "data": data, "encoding": "base64"}
    error = refused(shared.admin.post(f"/commands/{command}/stdin", json=body), 422, "invalid_input")
    assert "is not base64" in error["message"]
    shared.admin.delete(f"/sessions/{session}")
