"""The names, defaults and words that the users of host tasks already have in their code, one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from debug_server.config import load
from debug_server.config.tasks import TasksConfig
from debug_server.messages import Request
from debug_server.messages.tasks import RunnerMount, RunnerSandbox, RunnerSubmit, RunnerWorkspace
from tests.tasks.task_server import Receiver, TaskServer
from tests.tasks.test_executors import script

MakeServer = Callable[..., TaskServer]
REQUIRED = object()
REQUESTS: dict[type[Request], dict[str, Any]] = {
    RunnerSubmit: {
        **dict.fromkeys(("task_id", "run_id", "prompt"), REQUIRED),
        "execution_mode": "no-workspace",
        **dict.fromkeys(("workspace", "sandbox", "status_callback_url", "status_callback_token")),
        "timeout_seconds": 600,
        "handoff_context": [],
    },
    RunnerWorkspace: {
        **dict.fromkeys(("project_id", "project_root"), REQUIRED),
        "lock_paths": [],
        **dict.fromkeys(("worktree_path", "git_branch")),
    },
    RunnerSandbox: {
        **dict.fromkeys(("image", "command"), REQUIRED),
        "workdir": "/workspace/project",
        "env": {},
        "mounts": [],
    },
    RunnerMount: {**dict.fromkeys(("source", "target"), REQUIRED), "read_only": False},
}
VARIABLES: list[tuple[str, str, str, Any, Any]] = [
    ("HOST_RUNNER_EXECUTOR", "executor", "codex", "mock", "codex"),
    ("HOST_RUNNER_CMD_TEMPLATE", "cmd_template", "echo {prompt}", None, "echo {prompt}"),
    ("HOST_RUNNER_CODEX_BIN", "codex_bin", "/c", "codex", "/c"),
    ("HOST_RUNNER_CODEX_ARGS", "codex_args", "--json", "", "--json"),
    ("HOST_RUNNER_CLEANUP_WORKTREE", "cleanup_worktree", "false", True, False),
    ("HOST_RUNNER_DOCKER_SANDBOX_READ_ONLY_ROOTFS", "sandbox_read_only_rootfs", "0", True, False),
    ("HOST_RUNNER_DOCKER_SANDBOX_DROP_CAPS", "sandbox_drop_caps", "no", True, False),
    ("HOST_RUNNER_DOCKER_SANDBOX_NETWORK", "sandbox_network", "bridge", "none", "bridge"),
    ("HOST_RUNNER_DOCKER_SANDBOX_PIDS_LIMIT", "sandbox_pids_limit", "64", 256, 64),
    ("HOST_RUNNER_DOCKER_SANDBOX_MEMORY", "sandbox_memory", "1g", "2g", "1g"),
    ("HOST_RUNNER_DOCKER_SANDBOX_CPUS", "sandbox_cpus", "0.5", 2.0, 0.5),
]


@pytest.mark.parametrize("model", REQUESTS, ids=lambda model: model.__name__)
def test_fields_of_requests(model: type[Request]) -> None:
    """Each field has its name, is required or has its default."""
    for name, default in REQUESTS[model].items():
        field = model.model_fields[name]
        assert field.is_required() == (default is REQUIRED), name
        assert default is REQUIRED or field.get_default(call_default_factory=True) == default, name


@pytest.mark.parametrize(("variable", "name", "text", "default", "value"), VARIABLES, ids=[row[0] for row in VARIABLES])
def test_variables(variable: str, name: str, text: str, default: Any, value: Any) -> None:
    """Each variable has its default, and what it is set to is taken."""
    assert getattr(load(TasksConfig, environ={}).value, name) == default
    assert getattr(load(TasksConfig, environ={variable: text}).value, name) == value


def test_a_task_with_everything(make_server: MakeServer, receiver: Receiver, tmp_path: Path) -> None:
    """Every field at once is taken and told back; times are in UTC; the executor finds the hand-over."""
    server = make_server(
        executor="shell", cmd_template='echo "$HOST_RUNNER_HANDOFF_CONTEXT"', callback_allow="localhost"
    )
    workspace = {
        "project_id": 7,
        "project_root": str(tmp_path),
        "lock_paths": [str(tmp_path / "a"), str(tmp_path / "b")],
        "worktree_path": None,
        "git_branch": None,
    }
    more: dict[str, Any] = {
        "execution_mode": "shared-workspace",
        "workspace": workspace,
        "sandbox": {"image": "i", "command": ["c"]},
        "status_callback_url": f"{receiver.url}/runner/tasks/t/status",
        "status_callback_token": "tok",
        "timeout_seconds": 86_400,
        "handoff_context": [{"summary": "s"}, "text", None, 1.5],
        "role_name": "coder",
        "workspace_path": "/w",
    }
    found = server.run("t", **more)
    assert (found["status"], found["workspace"], found["execution_mode"]) == ("success", workspace, "shared-workspace")
    assert json.loads(found["stdout"]) == more["handoff_context"]
    for name in ("created_at", "updated_at", "started_at", "finished_at"):
        assert datetime.fromisoformat(found[name]).utcoffset() == timedelta(0), name


def test_every_word_about_an_end(make_server: MakeServer, tmp_path: Path) -> None:
    """Completed, failed and timed out for codex; an end by somebody else is told apart from a cancel by the API."""
    body = '#!/bin/bash\nread -r prompt; case "$prompt" in fail) exit 3;; wait) exec sleep 1000;; esac\n'
    server = make_server(executor="codex", codex_bin=script(tmp_path / "codex", body))
    for prompt, status, message in (
        ("fine", "success", "codex execution completed"),
        ("fail", "failed", "codex execution failed"),
        ("wait", "failed", "codex execution timed out"),
    ):
        found = server.run(prompt, prompt, timeout_seconds=1 if prompt == "wait" else 60)
        assert (found["status"], found["message"]) == (status, message)
    server.submitted("t", "wait")
    session = server.running("t")["session_id"]
    secret = server.local.store.tokens.create("a", ["admin"])[1]
    headers = {"Authorization": f"Bearer {secret}"}
    assert httpx.delete(f"{server.url}/sessions/{session}", headers=headers, timeout=60).status_code == 200
    found = server.ended("t")
    assert (found["status"], found["message"]) == ("canceled", "canceled before completion")


def test_rows_that_no_submission_made(server: TaskServer) -> None:
    """A command that has the subject of a task, and a session without the task, are shown as they are."""
    store = server.local.store
    session = store.sessions.create(requested_by="somebody")
    store.commands.add(session_id=session.id, argv=["true"], subject="task:made by hand", claim_owner="nobody")
    (listed,) = server.client.get("/tasks").raise_for_status().json()["items"]
    found = server.get("made by hand")
    for task in (listed, found):
        assert (task["task_id"], task["executor"], task["execution_mode"]) == (
            "made by hand",
            "unknown",
            "no-workspace",
        )
