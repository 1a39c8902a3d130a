"""Every rule about what a task may be: 422 names the field, 409 what is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debug_server.config import load
from debug_server.config.tasks import TasksConfig
from debug_server.errors import ConfigurationError
from debug_server.tasks.executors import Executors
from tests.tasks.task_server import TaskServer

WORKSPACE = {"project_id": 1, "project_root": "/", "lock_paths": ["/nowhere/a"]}
SANDBOX = {"image": "i", "command": ["c"]}
SHARED, ISOLATED, DOCKER = (
    {"execution_mode": mode} for mode in ("shared-workspace", "isolated-worktree", "docker-sandbox")
)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"task_id": ""}, "task_id"),
    ({"task_id": 7}, "task_id"),
    ({"task_id": "a/b"}, "task_id"),
    ({"task_id": ".."}, "task_id"),
    ({"task_id": "a\0b"}, "task_id"),
    ({"run_id": ""}, "run_id"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": "a\0b"}, "prompt"),
    ({"prompt": "x" * ((1 << 20) + 1)}, "prompt"),
    ({"prompt": ["x"]}, "prompt"),
    ({"execution_mode": "mock"}, "execution_mode"),
    ({"execution_mode": "docker"}, "execution_mode"),
    ({"timeout_seconds": 0}, "timeout_seconds"),
    ({"timeout_seconds": 86_401}, "timeout_seconds"),
    ({"timeout_seconds": "600"}, "timeout_seconds"),
    ({"status_callback_url": "ftp://example.org/"}, "status_callback_url"),
    ({"status_callback_url": "https://"}, "status_callback_url"),
    ({"status_callback_url": "http://user:pass@example.org/"}, "status_callback_url"),
    ({"status_callback_url": "http://127.0.0.1/x"}, "status_callback_url"),
    ({"status_callback_url": "http://localhost/x"}, "status_callback_url"),
    ({"status_callback_url": "http://[::1]/x"}, "status_callback_url"),
    ({"status_callback_url": "http://[::ffff:127.0.0.1]/x"}, "status_callback_url"),
    ({"status_callback_url": "http://169.254.169.254/latest"}, "status_callback_url"),
    ({"status_callback_url": "http://[fe80::1]/x"}, "status_callback_url"),
    ({"status_callback_url": "http://0.0.0.0/x"}, "status_callback_url"),
    ({"status_callback_url": "http://100.100.100.200/x"}, "status_callback_url"),
    ({"status_callback_url": f"http://{'x' * 64}.example/"}, "status_callback_url"),
    ({"status_callback_url": "http://a..example/"}, "status_callback_url"),
    ({"status_callback_url": "http://a b/"}, "status_callback_url"),
    ({"status_callback_token": ""}, "status_callback_token"),
    ({"status_callback_token": "t\u00f6ken"}, "status_callback_token"),
    ({"status_callback_token": "a\nb"}, "status_callback_token"),
    ({"status_callback_token": "a "}, "status_callback_token"),
    ({"unknown": 1}, "unknown"),
    ({"workspace": {**WORKSPACE, "project_id": 0}}, "workspace.project_id"),
    ({"workspace": {**WORKSPACE, "project_root": "relative"}}, "workspace.project_root"),
    ({"workspace": {**WORKSPACE, "project_root": "/a/../b"}}, "workspace.project_root"),
    ({"workspace": {**WORKSPACE, "lock_paths": ["relative"]}}, "workspace.lock_paths.0"),
    ({"workspace": {**WORKSPACE, "worktree_path": "relative"}}, "workspace.worktree_path"),
    ({"workspace": {**WORKSPACE, "git_branch": "-f"}}, "workspace.git_branch"),
    ({"workspace": {"project_root": "/"}}, "workspace.project_id"),
    (SHARED, "workspace"),
    ({**SHARED, "workspace": {**WORKSPACE, "lock_paths": []}}, "workspace.lock_paths"),
    ({**SHARED, "workspace": {**WORKSPACE, "project_root": "/no/such/place"}}, "workspace.project_root"),
    (ISOLATED, "workspace"),
    ({**ISOLATED, "workspace": WORKSPACE}, "workspace.worktree_path"),
    ({**ISOLATED, "workspace": {**WORKSPACE, "worktree_path": "/nowhere/w"}}, "workspace.git_branch"),
    (
        {**ISOLATED, "workspace": {**WORKSPACE, "worktree_path": "/nowhere/w", "git_branch": "b"}},
        "workspace.project_root",
    ),
    (DOCKER, "sandbox"),
    ({**DOCKER, "sandbox": {"command": ["c"]}}, "sandbox.image"),
    ({**DOCKER, "sandbox": {**SANDBOX, "image": "--privileged"}}, "sandbox.image"),
    ({**DOCKER, "sandbox": {**SANDBOX, "command": []}}, "sandbox.command"),
    ({**DOCKER, "sandbox": {**SANDBOX, "workdir": "relative"}}, "sandbox.workdir"),
    ({**DOCKER, "sandbox": {**SANDBOX, "env": {"A=B": "c"}}}, "sandbox.env"),
    ({**DOCKER, "sandbox": {**SANDBOX, "env": {"A": "c" * 140_000}}}, "sandbox.env.A"),
    ({**DOCKER, "sandbox": {**SANDBOX, "mounts": [{"source": "a", "target": "/b"}]}}, "sandbox.mounts.0.source"),
    ({**DOCKER, "sandbox": {**SANDBOX, "mounts": [{"source": "/a", "target": "b"}]}}, "sandbox.mounts.0.target"),
    ({**DOCKER, "sandbox": {**SANDBOX, "mounts": [{"source": "/a,b", "target": "/b"}]}}, "sandbox.mounts"),
]


def test_every_rule_names_its_field(server: TaskServer) -> None:
    """422, the field, a sentence; and nothing was queued."""
    for change, field in WRONG:
        body = {"task_id": "t", "run_id": "r", "prompt": "p", **change}
        answer = server.client.post("/tasks/submit", json=body)
        assert answer.status_code == 422, f"{change}: {answer.text}"
        error = answer.json()["error"]
        assert error["field"] == field and error["message"].startswith(f"{field}:"), f"{change}: {error}"
        assert "value error" not in error["message"], error
    for missing in ("task_id", "run_id", "prompt"):
        body = {name: "x" for name in ("task_id", "run_id", "prompt") if name != missing}
        assert server.client.post("/tasks/submit", json=body).json()["error"]["field"] == missing
    as_json = {"Content-Type": "application/json"}
    assert server.client.post("/tasks/submit", content=b"{", headers=as_json).status_code == 422
    assert server.client.get("/tasks").json()["items"] == []


def test_tokens_and_prompts_are_not_repeated_in_refusals(server: TaskServer) -> None:
    """A refusal of a secret field does not show its value."""
    answer = server.submit("t", status_callback_token="secret\0token")
    assert answer.status_code == 422 and "secret" not in answer.text


def test_a_long_prompt_goes_where_it_can_be_carried(make_server: Callable[..., TaskServer]) -> None:
    """1 MiB reaches an executor that reads stdin; one that takes a variable refuses it and names the limit."""
    prompt = "é$(x)'\"\n" * ((1 << 20) // 9)
    mock = make_server()
    found = mock.run("t", prompt)
    assert (found["status"], found["stdout_bytes"]) == ("success", len(prompt.encode()))
    assert mock.client.get(found["log_url"]).text == prompt
    shell = make_server(executor="shell", cmd_template="printf %s {prompt}")
    refused = shell.submit("t", prompt)
    assert refused.status_code == 422 and refused.json()["error"]["field"] == "prompt"
    assert "limit 131052" in refused.text
    assert shell.run("t", "x" * 131_052)["stdout_bytes"] == 131_052


def test_wrong_settings_are_told_at_the_start(tmp_path: Path) -> None:
    """Never a silent mock: an unknown executor, a missing template and bad arguments refuse to start."""
    for variables, message in (
        ({"HOST_RUNNER_EXECUTOR": "magic"}, "must be one of mock, shell, codex"),
        ({"HOST_RUNNER_EXECUTOR": "shell"}, "shell executor requires HOST_RUNNER_CMD_TEMPLATE"),
        ({"HOST_RUNNER_EXECUTOR": "shell", "HOST_RUNNER_CMD_TEMPLATE": "eval {prompt}"}, "eval"),
        ({"HOST_RUNNER_EXECUTOR": "codex", "HOST_RUNNER_CODEX_ARGS": "'"}, "HOST_RUNNER_CODEX_ARGS"),
        ({"HOST_RUNNER_CLEANUP_WORKTREE": "perhaps"}, "must be true or false"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            Executors(load(TasksConfig, environ=variables).value, tmp_path)


def test_a_task_id_is_any_text_that_a_url_can_hold(server: TaskServer) -> None:
    """Spaces, dots, percent signs and other alphabets work in every route."""
    task_id = "Aufgabe 1: 50 % größer?"
    server.submitted(task_id)
    from urllib.parse import quote

    found = server.ended(quote(task_id, safe=""))
    assert (found["task_id"], found["status"]) == (task_id, "success")
    assert server.client.get(found["log_url"]).text == "hello"


def test_a_body_of_another_site_is_refused(server: TaskServer) -> None:
    """Without a token only JSON is taken: a browser asks before it sends that to another site."""
    body = b'{"task_id": "t", "run_id": "r", "prompt": "p"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None):
        headers = {"Content-Type": kind} if kind else {}
        answer = server.client.post("/tasks/submit", content=body, headers=headers)
        assert answer.status_code == 415, f"{kind}: {answer.text}"
    assert server.client.get("/tasks").json()["items"] == []
