"""Each route answers as its contract says."""

from __future__ import annotations

import logging
import stat
import sys
from datetime import datetime
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError

from debug_server.model import LIMITS
from debug_server.surfaces.http.middleware import MAX_BODY
from tests.running import eventually
from tests.surfaces.http.serving import SECONDS, Served, answered, refused
from tests.worktrees.places import git, small_remote

PATCH = """diff --git a/README b/README
--- a/README
+++ b/README
@@ -1 +1 @@
-three
+four
"""


def test_repositories(served: Served) -> None:
    """A repository is registered, listed and found by name; again it is the same, another of its name a conflict."""
    body = {"name": "other", "remote_url": str(served.remote.path), "default_branch": "main", "settings": {"a": 1}}
    made = answered(served.admin.post("/repository/init", json=body), 201)
    assert (made["name"], made["settings"], made["description"]) == ("other", {"a": 1}, None)
    assert answered(served.admin.get("/repository/other"), 200) == made
    assert [item["name"] for item in answered(served.admin.get("/repository"), 200)["items"]] == ["repo", "other"]
    assert answered(served.admin.post("/repository/init", json=body), 201) == made
    anywhere = {name: value for name, value in body.items() if name != "default_branch"}
    assert answered(served.admin.post("/repository/init", json=anywhere), 201) == made
    for name, value in {"remote_url": "/elsewhere", "default_branch": "b", "description": "d", "settings": {}}.items():
        error = refused(served.admin.post("/repository/init", json={**body, name: value}), 409, "conflict")
        assert f"another {name}" in error["message"] and "update" not in error["message"], error
    refused(served.admin.get("/repository/none"), 404, "not_found")


def test_the_default_branch_is_the_remotes_own(served: Served) -> None:
    """Without one given it is what the remote's HEAD names, and main for a remote without a branch."""
    old = small_remote(served.root / "old")
    git("branch", "-m", "main", "master", cwd=old.path)
    empty = served.root / "empty.git"
    git("init", "--quiet", "--bare", str(empty), cwd=served.root)
    for remote, given, branch in (
        (str(old.path), None, "master"),
        (str(old.path), "other", "other"),
        (str(empty), None, "main"),
    ):
        body = {"name": f"named-{given}-{branch}", "remote_url": remote, "default_branch": given}
        made = answered(served.admin.post("/repository/init", json=body), 201)
        assert made["default_branch"] == branch


def test_a_remote_that_does_not_answer_is_refused(served: Served) -> None:
    """An address where nobody listens, and a folder that is no repository: nothing is registered."""
    (served.root / "folder").mkdir()
    for remote, reason in (
        ("https://127.0.0.1:9/nowhere.git", "127.0.0.1"),
        (str(served.root / "folder"), "folder"),
        (str(served.root / "absent"), "does not exist"),
        ("./repo", "is a relative path: give a git URL, or an absolute path on the server's machine"),
    ):
        body = {"name": "away", "remote_url": remote, "default_branch": "main"}
        error = refused(served.admin.post("/repository/init", json=body), 422, "invalid_input")
        assert reason in error["message"], error
        refused(served.admin.get("/repository/away"), 404, "not_found")


def test_a_session_from_its_opening_to_its_end(served: Served) -> None:
    """A session has both its ids and every field; commit is an alias; it is closed once and stays closed."""
    body = {"repository": "repo", "commit": "main", "patch": PATCH, "metadata": {"k": "v"}, "requested_by": "me"}
    opened = answered(served.admin.post("/sessions", json={**body, "expires_in": 600}), 201)
    assert opened["id"] == opened["session_id"]
    assert opened["commit_sha"] == served.remote.commits[-1]
    assert (opened["metadata"], opened["requested_by"], len(opened["patch_hash"])) == ({"k": "v"}, "me", 64)
    assert datetime.fromisoformat(opened["expires_at"]) > datetime.fromisoformat(opened["created_at"])
    path = f"/sessions/{opened['id']}"
    assert answered(served.admin.get(path), 200)["worktree_id"] == opened["worktree_id"]
    diff = answered(served.admin.get(f"{path}/diff"), 200)
    assert "+four" in diff["patch"] and diff["exact"] is True
    raw = served.admin.get(f"{path}/diff", headers={"Accept": "text/x-patch"})
    assert raw.headers["content-type"].startswith("text/x-patch") and raw.text == diff["patch"]
    assert answered(served.admin.delete(path), 200) == {"message": f"session {opened['id']} is closed"}
    assert answered(served.admin.get(path), 200)["status"] == "cancelled"
    refused(served.admin.post(f"{path}/commands", json={"argv": ["true"]}), 409, "conflict")


def test_a_session_with_its_commands(served: Served) -> None:
    """Commands that come with a session are queued in their order, once under a key; they need their own scope."""
    lines = ["echo $WORD > made", "cat made; exit 3"]
    body = {"repository": "repo", "commit": "main", "commands": lines, "env": {"WORD": "one"}, "cwd": "docs"}
    key = {"Idempotency-Key": "with commands"}
    opened = answered(served.admin.post("/sessions", json=body, headers=key), 201)
    assert answered(served.admin.post("/sessions", json=body, headers=key), 201) == opened
    rows = answered(served.admin.get(f"/sessions/{opened['session_id']}/commands"), 200)["items"]
    assert [row["command"] for row in rows] == [["/bin/bash", "-c", text] for text in body["commands"]]
    ended = answered(served.admin.get(f"/commands/{rows[1]['id']}/wait?timeout=100"), 200)
    assert (ended["exit_code"], served.admin.get(f"/commands/{ended['id']}/log").text) == (3, "one\n")
    before = len(answered(served.admin.get("/sessions"), 200)["items"])
    with served.client(["sessions:write"]) as client:
        refused(client.post("/sessions", json=body), 403, "forbidden")
    refused(served.admin.post("/sessions", json={**body, "commands": [""]}), 422, "invalid_input")
    with served.client(quotas={"commands": 1}) as client:
        refused(client.post("/sessions", json=body), 429, "quota_exceeded")
    assert len(answered(served.admin.get("/sessions"), 200)["items"]) == before


def test_reset_and_fork(served: Served) -> None:
    """A reset forgets what commands wrote; forks start from what there is."""
    session = served.session()
    served.run(session, "sh", "-c", "echo new > made.txt")
    forks = answered(served.admin.post(f"/sessions/{session}/fork", json={"count": 2}), 201)["items"]
    assert len(forks) == 2
    assert answered(served.admin.post(f"/sessions/{session}/reset"), 200)["id"] == session
    assert answered(served.admin.get(f"/sessions/{session}/diff"), 200)["patch"] == ""
    assert "made.txt" in answered(served.admin.get(f"/sessions/{forks[0]['id']}/diff"), 200)["patch"]


def test_a_diff_that_git_cannot_make_is_refused(served: Served) -> None:
    """Folders below a path that is longer than the kernel takes: a clear refusal, and the session goes on."""
    session = served.session()
    text = "import os\nfor _ in range(21):\n os.mkdir('d' * 200)\n os.chdir('d' * 200)"
    served.run(session, sys.executable, "-c", text)
    error = refused(served.admin.get(f"/sessions/{session}/diff"), 422, "worktree_error")
    assert "'ddd" in error["message"] and "4095 bytes" in error["message"], error
    assert answered(served.admin.post(f"/sessions/{session}/reset"), 200)["id"] == session
    assert answered(served.admin.get(f"/sessions/{session}/diff"), 200)["patch"] == ""


def test_commands_and_artifacts(served: Served, tmp_path: Path) -> None:
    """A command has its fields and its order, its files can be fetched, those refused are named, and a file that is
    gone is not found."""
    session = served.session()
    script = (
        "echo $A; pwd; echo x > junit.xml; ln -s /etc/passwd out.xml; mkfifo pipe.xml; ln -s a.xml a.xml; ln -s . b.xml"
    )
    body = {"argv": ["sh", "-c", script], "env": {"A": "b"}, "cwd": "docs"}
    made = answered(served.admin.post(f"/sessions/{session}/commands", json={**body, "artifacts": ["docs/*.xml"]}), 201)
    assert (made["session_id"], made["sequence"], made["command"]) == (session, 1, body["argv"])
    ended = answered(served.admin.get(f"/commands/{made['id']}/wait", params={"timeout": SECONDS}), 200)
    assert (ended["status"], ended["exit_code"], ended["exit_reason"]) == ("succeeded", 0, "exited")
    assert answered(served.admin.get(f"/commands/{made['id']}"), 200)["exit"]["reason"] == "exited"
    served.run(session, "false")
    listed = answered(served.admin.get(f"/sessions/{session}/commands"), 200)["items"]
    assert [(item["sequence"], item["status"]) for item in listed] == [(1, "succeeded"), (2, "failed")]

    def files() -> list[dict[str, object]]:
        items = answered(served.admin.get(f"/sessions/{session}/artifacts"), 200)["items"]
        return [item for item in items if item["name"].endswith("junit.xml")]

    artifact = eventually(files, what="the artifact")[0]
    events = answered(served.admin.get("/events", params={"limit": 1000}), 200)["items"]
    named = [(item["command_id"], item["data"]["name"]) for item in events if item["kind"] == "artifact.refused"]
    assert sorted(named) == [(made["id"], f"docs/{name}.xml") for name in ("a", "b", "out", "pipe")]
    assert all(item["data"]["reason"] for item in events if item["kind"] == "artifact.refused")
    path = f"/sessions/{session}/artifacts/{artifact['id']}"
    fetched = served.admin.get(path)
    assert fetched.content == b"x\n" and "attachment" in fetched.headers["content-disposition"]
    assert answered(served.admin.get(f"{path}/info"), 200)["sha256"] == artifact["sha256"]
    refused(served.admin.get(f"/sessions/{served.session()}/artifacts/{artifact['id']}"), 404, "not_found")
    Path(served.local.store.artifacts.get(int(str(artifact["id"]))).path).unlink()
    refused(served.admin.get(path), 404, "not_found")


def test_cancel_signal_and_stdin(served: Served) -> None:
    """A running command takes input and signals and can be cancelled; an ended one cannot be signalled."""
    session = served.session()
    reader = served.submit(session, "cat", stdin=True)
    wait_running(served, reader)
    write = {"write_id": "1", "data": "hé\n", "close": True}
    assert "reached" in answered(served.admin.post(f"/commands/{reader}/stdin", json=write), 200)["message"]
    answered(served.admin.get(f"/commands/{reader}/wait?timeout=100"), 200)
    assert served.admin.get(f"/commands/{reader}/log").text == "hé\n"
    sleeper = served.submit(session, "sleep", "600")
    wait_running(served, sleeper)
    answered(served.admin.post(f"/commands/{sleeper}/signal", json={"signal": 15}), 200)
    assert answered(served.admin.get(f"/commands/{sleeper}/wait?timeout=100"), 200)["exit_reason"] == "signaled"
    refused(served.admin.post(f"/commands/{sleeper}/signal", json={"signal": 15}), 409, "conflict")
    late = {"write_id": "late", "data": "x"}
    refused(served.admin.post(f"/commands/{sleeper}/stdin", json=late), 409, "conflict")
    cancelled = served.submit(session, "sleep", "600")
    assert answered(served.admin.post(f"/commands/{cancelled}/cancel"), 200)["status"] == "cancelled"
    assert answered(served.admin.post(f"/commands/{cancelled}/cancel"), 200)["status"] == "cancelled"


def wait_running(served: Served, command: int) -> None:
    eventually(lambda: answered(served.admin.get(f"/commands/{command}"), 200)["status"] == "running")


def test_runs(served: Served) -> None:
    """One request opens, runs and closes; with wait the reply has the end."""
    body = {"repository": "repo", "commit": "HEAD", "argv": ["cat", "README"], "limits": {"timeout": 60}}
    done = answered(served.admin.post("/runs", params={"wait": SECONDS}, json=body), 201)
    assert done["command"]["exit_reason"] == "exited"
    session = done["session"]["id"]
    eventually(lambda: answered(served.admin.get(f"/sessions/{session}"), 200)["status"] == "completed")
    assert served.admin.get(f"/commands/{done['command']['id']}/log").text == "three\n"
    at_once = answered(served.admin.post("/runs", json={**body, "argv": ["sleep", "600"]}), 201)
    assert at_once["command"]["status"] in ("pending", "running")
    refused(served.admin.post("/runs", params={"wait": -1}, json=body), 422, "invalid_input")
    refused(served.admin.post("/runs", json={**body, "artifacts": ["../x"]}), 422, "invalid_input")
    refused(served.admin.post("/runs", json={**body, "commit": "nowhere"}), 404, "unknown_commit")


def test_events(served: Served) -> None:
    """Events are read by cursor and filtered."""
    session = served.session()
    command = served.run(session, "true")
    page = answered(served.admin.get("/events", params={"session_id": session, "kind": "command."}), 200)
    kinds = [item["kind"] for item in page["items"]]
    assert kinds == ["command.pending", "command.started", "command.finished"]
    assert all(item["command_id"] == command for item in page["items"])
    after = answered(served.admin.get("/events", params={"after": page["next_after"], "command_id": command}), 200)
    assert after["items"] == []


def test_a_session_runs_from_its_first_command_on(served: Served) -> None:
    """pending, running once, and at last how it was ended; with an event for each step."""
    session = served.session()
    assert answered(served.admin.get(f"/sessions/{session}"), 200)["status"] == "pending"
    served.run(session, "true")
    served.run(session, "false")
    assert answered(served.admin.get(f"/sessions/{session}"), 200)["status"] == "running"
    answered(served.admin.delete(f"/sessions/{session}"), 200)
    assert answered(served.admin.get(f"/sessions/{session}"), 200)["status"] == "completed"
    page = answered(served.admin.get("/events", params={"session_id": session, "kind": "session."}), 200)
    assert [item["kind"] for item in page["items"]] == ["session.created", "session.running", "session.completed"]


def test_operators(served: Served) -> None:
    """Tokens are made, shown without their secret and revoked; leases, workers and the caller itself are told."""
    made = answered(served.admin.post("/auth/tokens", json={"name": "ci", "expires_in": 60}), 201)
    assert made["scopes"] == ["sessions:read", "sessions:write"] and len(made["token"]) >= 40
    listed = answered(served.admin.get("/auth/tokens"), 200)["items"]
    assert [item["token"] for item in listed if item["id"] == made["id"]] == [None]
    client = httpx.Client(base_url=served.url, headers={"Authorization": f"Bearer {made['token']}"}, timeout=SECONDS)
    me = answered(client.get("/whoami"), 200)
    assert (me["token_id"], me["name"]) == (made["id"], "ci")
    answered(served.admin.delete(f"/auth/tokens/{made['id']}"), 200)
    error = client.get("/whoami")
    refused(error, 401, "unauthorized")
    assert error.headers["www-authenticate"].startswith("Bearer")
    refused(served.admin.post("/auth/tokens", json={"name": "x", "scopes": ["root"]}), 422, "invalid_input")
    refused(served.admin.post("/auth/tokens", json={"name": "x", "quotas": {"cpus": 1}}), 422, "invalid_input")
    served.session()
    assert len(answered(served.admin.get("/leases"), 200)["items"]) == 1
    assert answered(served.admin.get("/workers"), 200) == {"items": [], "next_after": None}


def test_probes(served: Served) -> None:
    """Health needs no token; readiness is really checked; metrics are Prometheus' text."""
    with httpx.Client(base_url=served.url, timeout=SECONDS) as nobody:
        assert nobody.get("/health").json() == {"status": "ok"}
        assert answered(nobody.get("/healthz"), 200)["message"] == "ok"
        assert answered(nobody.get("/livez"), 200)["ok"] is True
        ready = answered(nobody.get("/readyz"), 200)
        assert ready["message"] == "ready" and set(ready["checks"]) == {"store", "disk", "keepers", "engine"}
        # The dispatcher tells it when it has looked for the first time.
        eventually(lambda: "debug_server_queue_depth" in nobody.get("/metrics").text, what="the depth of the queue")
        refused(nobody.get("/whoami"), 401, "unauthorized")


def test_readiness_fails_with_the_store(base: Path) -> None:
    """A store that cannot be read makes the server not ready, with 503 and Retry-After."""
    served = Served(base)
    database = base / "data" / "metadata.db"
    try:
        with served.local.store._database.write() as transaction:
            transaction.run("ALTER TABLE events RENAME TO hidden")
        answer = httpx.get(f"{served.url}/readyz", timeout=SECONDS)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["checks"]["store"] != "ok" and answer.json()["message"] == "not ready"
    finally:
        with served.local.store._database.write() as transaction:
            transaction.run("ALTER TABLE hidden RENAME TO events")
        served.close()
    assert database.exists()


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"{", None),
        (b"[1]", None),
        (b'"text"', None),
        (b'{"repository": "repo", "commit": NaN}', None),
        (b'{"repository": "repo", "commit": "\\ud800"}', None),
        (b"[" * 100_000, None),
        (b"{}", "repository"),
        (b'{"repository": 1, "commit": "main"}', "repository"),
        (b'{"repository": "repo", "commit": "main", "comit": 1}', "comit"),
        (b'{"repository": "repo", "commit": "main", "commit_sha": "main"}', "body"),
        (b'{"repository": "repo", "commit": "main", "expires_in": 59}', "expires_in"),
        (b'{"repository": "repo", "commit": "main", "expires_in": "600"}', "expires_in"),
    ],
)
def test_bad_bodies(shared: Served, content: bytes, field: str | None) -> None:
    """What is not JSON, not an object, or does not fit is 422, and a wrong field is named."""
    error = refused(shared.admin.post("/sessions", content=content), 422, "invalid_input")
    assert error.get("field") == field


def test_bad_paths_and_methods(shared: Served) -> None:
    """Unknown paths, methods and ids have the one error shape."""
    refused(shared.admin.get("/nowhere"), 404, "not_found")
    answer = shared.admin.put("/sessions")
    refused(answer, 405, "invalid_input")
    assert answer.headers["allow"] == "GET, HEAD, POST"
    assert refused(shared.admin.get("/sessions/x"), 422, "invalid_input")["field"] == "session_id"
    assert refused(shared.admin.get("/sessions/-1"), 422, "invalid_input")["field"] == "session_id"
    refused(shared.admin.get(f"/sessions/{2**63}"), 422, "invalid_input")
    refused(shared.admin.get("/sessions/99999"), 404, "not_found")
    refused(shared.admin.get("/commands/99999"), 404, "not_found")
    assert refused(shared.admin.get("/sessions", params={"limt": 3}), 422, "invalid_input")["field"] == "limt"
    session = shared.session()
    workspace = shared.local.store.worktrees.page()[-1].path
    for cwd in ("/etc", "../..", "docs/../..", f"{workspace}/../x"):
        outside = {"argv": ["true"], "cwd": cwd}
        error = refused(shared.admin.post(f"/sessions/{session}/commands", json=outside), 422, "invalid_input")
        assert error["field"] == "cwd" and "outside the workspace" in error["message"]
    body = {"argv": ["true"], "session_id": session + 1}
    refused(shared.admin.post(f"/sessions/{session}/commands", json=body), 422, "invalid_input")
    answered(shared.admin.post(f"/sessions/{session}/commands", json={**body, "session_id": session}), 201)


def test_secrets_are_not_repeated(shared: Served) -> None:
    """An error about an environment does not show its values."""
    body = {"argv": ["true"], "env": {"KEY": 12345}}
    error = refused(shared.admin.post(f"/sessions/{shared.session()}/commands", json=body), 422, "invalid_input")
    assert error["field"] == "env.KEY" and "12345" not in error["message"]


def test_bodies_have_a_bound(shared: Served) -> None:
    """A body that says it is too large, or turns out to be, is 413; one of 16 MiB is read."""
    patch = "x" * (16 << 20)
    body = {"repository": "none", "commit": "main", "patch": patch}
    refused(shared.admin.post("/sessions", json=body), 404, "not_found")
    refused(shared.admin.post("/sessions", content=b"x" * (MAX_BODY + 1)), 413, "payload_too_large")

    def pieces() -> object:
        for _ in range(MAX_BODY // 65536 + 2):
            yield b" " * 65536

    refused(shared.admin.post("/sessions", content=pieces()), 413, "payload_too_large")  # type: ignore[arg-type]


def test_what_commands_said_and_left_is_closed_to_other_users(served: Served) -> None:
    """Logs, artifacts and patches lie in folders that only the server's own user can enter."""
    patch = "--- /dev/null\n+++ b/new.xml\n@@ -0,0 +1 @@\n+x\n"
    served.run(served.session(patch=patch), "echo", "said", artifacts=["new.xml"])
    folders = [served.root / "artifacts" / name for name in ("logs", "collected", "patches")]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * 3


def test_the_log_among_the_artifacts_has_its_size(served: Served) -> None:
    """Its size is the log's, in the list and by itself."""
    session = served.session()
    command = served.run(session, "echo", "hello")
    [log] = answered(served.admin.get(f"/sessions/{session}/artifacts"), 200)["items"]
    assert (log["kind"], log["command_id"], log["size"]) == ("log", command, 6)
    assert answered(served.admin.get(f"/sessions/{session}/artifacts/{log['id']}/info"), 200) == log


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/sessions", {"repository": "repo", "commit": "HEAD", "requested_by": "a\0"}, "requested_by"),
        (
            "/sessions",
            {"repository": "repo", "commit": "HEAD", "metadata": {"a": ["b", {"c": "d\0"}]}},
            "metadata.a.1.c",
        ),
        ("/sessions", {"repository": "repo", "commit": "HEAD", "metadata": {"a\0": 1}}, "metadata"),
        ("/repository/init", {"name": "nul", "remote_url": "/r", "description": "a\0b"}, "description"),
        ("/auth/tokens", {"name": "a\0b"}, "name"),
        ("/auth/tokens", {"name": "two\nlines"}, "name"),
        ("/auth/tokens", {"name": "nobody", "scopes": []}, "scopes"),
    ],
)
def test_texts_that_cannot_be_kept(shared: Served, path: str, body: dict[str, object], field: str) -> None:
    """NUL in any text, a line break in a token's name and a token without scopes: 422, whatever the store would do."""
    error = refused(shared.admin.post(path, json=body), 422, "invalid_input")
    assert error["field"] == field, error


def test_a_limit_by_another_name(shared: Served) -> None:
    """A name of the settings' is answered with the one that is meant here, an unknown one with all that there are."""
    body = {"repository": "repo", "commit": "HEAD", "argv": ["true"]}
    for given, said in {
        "memory": "in requests this limit is named memory_bytes,",
        "output": "in requests this limit is named output_bytes,",
        "file_size": "in requests this limit is named file_size_bytes,",
        "idle_timeout": "in requests this limit is named idle_seconds,",
        "nonsense": f"use one of {', '.join(sorted(LIMITS))}",
    }.items():
        error = refused(shared.admin.post("/runs", json={**body, "limits": {given: "64M"}}), 422, "invalid_input")
        assert error["field"] == f"limits.{given}" and said in error["message"], error
    both = {**body, "limits": {"timeout": 5, "wall_seconds": 5}}
    assert "wall_seconds" in refused(shared.admin.post("/runs", json=both), 422, "invalid_input")["message"]
    limits = answered(shared.admin.get("/openapi.json"), 200)["components"]["schemas"]["LimitsRequest"]
    assert {"timeout", "wall_seconds"} <= limits["properties"].keys()


def test_debuggers_are_not_there(shared: Served) -> None:
    """Debug verbs answer 501, over a WebSocket the error and a close with 1011."""
    session = shared.session()
    refused(shared.admin.post(f"/sessions/{session}/debug", json={"action": "open"}), 501, "debugger_unavailable")
    with shared.socket(f"/sessions/{session}/debug") as socket:
        assert "debugger_unavailable" in str(socket.recv(timeout=SECONDS))
        with pytest.raises(ConnectionClosedError):
            socket.recv(timeout=SECONDS)
        assert socket.close_code == 1011


def test_request_ids_and_the_audit_record(shared: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Answers have an id, the client's if it is sound; every request is recorded with its token, without secrets."""
    with caplog.at_level(logging.INFO, logger="debug_server.api"):
        given = shared.admin.get("/whoami", headers={"X-Request-Id": "mine-1"})
        made = shared.admin.get("/nowhere", headers={"X-Request-Id": "x" * 500})
        with shared.socket(f"/sessions/999/logs?token={'s' * 20}") as socket, pytest.raises(ConnectionClosedError):
            socket.recv(timeout=SECONDS)
        # Inside: a connection is recorded after its end, and not at all where nobody wants to know.
        records = eventually(lambda: [r for r in caplog.records if r.message == "api.request"][2:] and caplog.records)
    assert given.headers["x-request-id"] == "mine-1" and len(made.headers["x-request-id"]) == 16
    first = next(record for record in records if record.path == "/whoami")
    assert (first.method, first.status, first.token_name, first.request_id) == ("GET", 200, "tester", "mine-1")
    assert first.token_id > 0 and first.duration_ms > 0
    secret = shared.admin.headers["Authorization"].split()[1]
    assert not [record for record in records if secret in str(vars(record)) or "s" * 20 in str(vars(record))]


def test_a_defect_shows_nothing(base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected exception is internal_error with the request's id; the traceback is in the log only."""
    served = Served(base)

    async def broken(caller: object, request: object) -> None:
        raise ZeroDivisionError("inner secret")

    monkeypatch.setattr(served.local.service.tokens, "who_am_i", broken)
    answer = served.admin.get("/whoami")
    error = refused(answer, 500, "internal_error")
    assert "secret" not in answer.text and answer.headers["x-request-id"] in error["message"]
    assert "ZeroDivisionError" in caplog.text
    served.close()
