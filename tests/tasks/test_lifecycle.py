"""A task's way from its submission to its end, through the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from tests.tasks.task_server import TaskServer

FIELDS = (
    *("task_id", "run_id", "execution_mode", "workspace", "status", "message", "executor", "created_at", "updated_at"),
    *("started_at", "finished_at", "exit_code", "stdout", "stderr", "container_id", "worktree_cleanup_attempted"),
    *("worktree_cleanup_succeeded", "worktree_cleanup_message"),
)
MakeServer = Callable[..., TaskServer]


def test_a_mock_task_reaches_its_end(gate: Path, server: TaskServer) -> None:
    """Submitted, it is queued and accepted; it runs, and ends with the prompt on stdout, status 0 and all fields."""
    first = server.submitted("t1", "say this\nand that")
    assert tuple(first)[: len(FIELDS)] == FIELDS
    assert (first["status"], first["message"], first["executor"]) == ("queued", "accepted", "mock")
    assert (first["execution_mode"], first["workspace"], first["exit_code"]) == ("no-workspace", None, None)
    assert (first["started_at"], first["finished_at"], first["worktree_cleanup_attempted"]) == (None, None, False)
    assert server.running("t1")["message"] == "running"
    gate.touch()
    last = server.ended("t1")
    assert (last["status"], last["message"]) == ("success", "mock execution completed")
    assert (last["exit_code"], last["stdout"], last["stderr"]) == (0, "say this\nand that", "")
    moments = [datetime.fromisoformat(last[name]) for name in ("created_at", "started_at", "finished_at")]
    assert moments == sorted(moments) and all(moment.utcoffset() is not None for moment in moments)
    # From before its start: the server may hear of that later than the first of the ten pauses begins.
    assert (moments[2] - moments[0]).total_seconds() >= 0.3
    assert (last["exit_reason"], last["stdout_bytes"], last["stderr_bytes"]) == ("exited", 17, 0)
    assert server.client.get(last["log_url"]).text == "say this\nand that"


@pytest.mark.usefixtures("gate")
def test_cancel_stops_a_mock(server: TaskServer) -> None:
    """At once after its submission it is canceled, whether it has started or not."""
    server.submitted("t")
    assert server.cancel("t")["status"] == "canceled"


def test_cancel_stops_a_running_task(make_server: MakeServer) -> None:
    """The answer comes when nothing of it is left, and a second cancel changes nothing."""
    server = make_server(executor="shell", cmd_template="sleep 1000")
    server.submitted("t")
    server.running("t")
    found = server.cancel("t")
    assert (found["status"], found["message"], found["exit_reason"]) == ("canceled", "canceled by api", "cancelled")
    assert found["finished_at"] and found["exit"]["signal"] in (None, 15, 9)
    assert server.cancel("t") == found == server.get("t")


def test_cancel_of_a_queued_task_never_starts_it(gate: Path, make_server: MakeServer) -> None:
    """It ends without a start and without a log."""
    server = make_server(max_concurrency=1)
    server.submitted("first")
    server.running("first")
    server.submitted("second")
    found = server.cancel("second")
    assert (found["status"], found["started_at"], found["log_bytes"]) == ("canceled", None, 0)
    assert found["message"] == "canceled by api"
    gate.touch()
    assert server.ended("first")["status"] == "success"
    assert server.get("second") == found


def test_a_terminal_task_is_returned_unchanged(server: TaskServer) -> None:
    """Cancel after the end is no error and changes nothing."""
    done = server.run("t")
    assert server.cancel("t") == done


def test_unknown_tasks(server: TaskServer) -> None:
    """404 with the id, on every route."""
    for method, path in (
        *(("GET", "/tasks/no"), ("POST", "/tasks/no/cancel"), ("GET", "/tasks/no/wait")),
        *(("GET", "/tasks/no/log"), ("GET", "/tasks/no/log.ndjson"), ("GET", "/tasks/no/log/events")),
    ):
        answer = server.client.request(method, path)
        assert answer.status_code == 404 and "there is no task 'no'" in answer.text, path


def test_ids_and_keys(gate: Path, server: TaskServer) -> None:
    """A live id is 409; the same request with the same key is the same task; an ended id may be used again."""
    first = server.submitted("t", key="k1")
    again = server.submit("t")
    assert again.status_code == 409 and "'t' cannot be queued" in again.text
    same = server.submitted("t", key="k1")
    assert same["command_id"] == first["command_id"]
    other = server.submit("t", "something else", key="k1")
    assert other.status_code == 409 and "idempotency key" in other.text
    gate.touch()
    assert server.ended("t")["status"] == "success"
    assert server.submitted("t", key="k1")["command_id"] == first["command_id"]
    assert server.submitted("t", key="k2")["command_id"] > first["command_id"]
    server.ended("t")


def test_a_cancel_with_a_key(make_server: MakeServer) -> None:
    """A repeated cancel with the same key gets the first reply, also when the id has another task since."""
    server = make_server(executor="shell", cmd_template="sleep 1000")
    keyed = {"Idempotency-Key": "c1"}
    first = server.submitted("again", "sleep 60")
    cancelled = server.client.post("/tasks/again/cancel", headers=keyed).raise_for_status().json()
    assert cancelled["command_id"] == first["command_id"] and cancelled["status"] == "canceled"
    second = server.submitted("again", "sleep 60")
    assert server.client.post("/tasks/again/cancel", headers=keyed).raise_for_status().json() == cancelled
    assert server.get("again")["command_id"] == second["command_id"] and not server.get("again")["finished_at"]
    server.client.post("/tasks/again/cancel").raise_for_status()
    assert server.submit("again", "sleep 60", key="c1").status_code == 409


def test_the_list(server: TaskServer) -> None:
    """Oldest first, in pages, by status."""
    for number in range(3):
        server.submitted(f"t{number}")
    for number in range(3):
        server.ended(f"t{number}")
    page = server.client.get("/tasks", params={"limit": 2}).json()
    assert [item["task_id"] for item in page["items"]] == ["t0", "t1"]
    rest = server.client.get("/tasks", params={"limit": 2, "after": page["next_after"]}).json()
    assert ([item["task_id"] for item in rest["items"]], rest["next_after"]) == (["t2"], None)
    assert len(server.client.get("/tasks", params={"status": "success"}).json()["items"]) == 3
    assert server.client.get("/tasks", params={"status": "failed"}).json()["items"] == []
    assert server.client.get("/tasks", params={"status": "pending"}).status_code == 422


def test_wait_has_a_deadline(gate: Path, server: TaskServer) -> None:
    """A task that is not over is returned as it is."""
    server.submitted("t")
    assert server.client.get("/tasks/t/wait", params={"timeout": 0.01}).json()["status"] in ("queued", "running")
    assert server.client.get("/tasks/t/wait", params={"timeout": 0}).status_code == 422
    gate.touch()
    assert server.ended("t")["status"] == "success"


def test_logs_are_followed_by_every_way(make_server: MakeServer, tmp_path: Path) -> None:
    """NDJSON, SSE and WebSocket give the same chunks with their offsets, live, until the end."""
    gate = tmp_path / "gate"
    held = f"until [ -e {gate} ]; do sleep 0.02; done"
    server = make_server(executor="shell", cmd_template=f'echo one; {held}; echo "{{prompt}}"; echo two >&2')
    server.submitted("t", "döne")
    with server.client.stream("GET", "/tasks/t/log.ndjson", params={"follow": True}) as answer:
        lines = []
        for line in answer.iter_lines():
            lines.append(json.loads(line))
            gate.touch()  # the first has come while the task still runs
    assert {line["task_id"] for line in lines} == {"t"}
    assert "".join(line["chunk"] for line in lines if line["stream"] == "stdout") == "one\ndöne\n"
    assert "".join(line["chunk"] for line in lines if line["stream"] == "stderr") == "two\n"
    assert [line["offset"] for line in lines] == sorted(line["offset"] for line in lines)
    with connect(f"ws://127.0.0.1:{server.port}/tasks/t/log", open_timeout=60) as socket:
        assert [json.loads(text) for text in socket] == lines
    events = server.client.get("/tasks/t/log/events").text
    kinds = [line.removeprefix("event: ") for line in events.splitlines() if line.startswith("event: ")]
    assert kinds == ["log"] * len(lines) + ["end"]
    assert json.loads(events.strip().splitlines()[-1].removeprefix("data: "))["status"] == "success"
    resumed = server.client.get("/tasks/t/log/events", headers={"Last-Event-ID": str(lines[0]["next_offset"])}).text
    assert "one" not in resumed.replace("döne", "").partition("event: end")[0]


def test_long_output_is_a_tail_with_its_length(make_server: MakeServer) -> None:
    """stdout in the answer is bounded, says how much there was, and the whole is behind the link."""
    server = make_server(executor="shell", cmd_template="seq 1 60000; echo bad >&2; exit 3")
    found = server.run("t")
    whole = "".join(f"{number}\n" for number in range(1, 60001))
    assert (found["status"], found["message"], found["exit_code"]) == ("failed", "shell execution failed", 3)
    assert found["stdout_bytes"] == len(whole) > 300_000 and found["stdout_truncated"] is True
    assert len(found["stdout"]) == 64 << 10 and whole.endswith(found["stdout"])
    assert (found["stderr"], found["stderr_bytes"], found["stderr_truncated"]) == ("bad\n", 4, False)
    assert server.client.get(found["log_url"]).text.replace("bad\n", "") == whole


def test_a_timeout_says_so(make_server: MakeServer) -> None:
    """failed, timed_out, no exit code, and the tree is gone."""
    server = make_server(executor="shell", cmd_template="trap '' TERM; sleep 1000 & wait")
    found = server.run("t", timeout_seconds=1)
    assert (found["status"], found["message"]) == ("failed", "shell execution timed out")
    assert (found["exit_reason"], found["exit_code"]) == ("timed_out", None)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "evil.example"}, 401),
        ({"Origin": "http://evil.example"}, 401),
        ({"Origin": "http://localhost:3000"}, 401),
        ({"Host": "localhost:3000", "Origin": "http://localhost:3000"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 401),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Authorization": "Bearer nonsense"}, 401),
    ],
)
def test_who_may_call_without_a_token(server: TaskServer, headers: dict[str, str], status: int) -> None:
    """This machine may, unless a web page of another origin made it."""
    assert server.client.get("/tasks", headers=headers).status_code == status


def test_a_token_sees_its_own_tasks(gate: Path, server: TaskServer) -> None:
    """Another's task looks as if it did not exist; scopes are checked."""
    secrets = [
        server.local.store.tokens.create(name, ["sessions:write", "sessions:read", "commands:write"])[1]
        for name in "ab"
    ]
    reader = server.local.store.tokens.create("r", ["sessions:read"])[1]
    one, two, read = (
        httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {item}"}, timeout=60)
        for item in (*secrets, reader)
    )
    body = {"task_id": "t", "run_id": "r", "prompt": "p"}
    assert one.post("/tasks/submit", json=body).status_code == 200
    assert one.get("/tasks/t").status_code == 200
    assert two.get("/tasks/t").status_code == two.post("/tasks/t/cancel").status_code == 404
    assert two.post("/tasks/submit", json=body).status_code == 409
    assert read.post("/tasks/submit", json=body).status_code == 403
    assert read.get("/tasks").json()["items"] == [] and len(one.get("/tasks").json()["items"]) == 1
    gate.touch()
    server.ended("t")
    assert two.post("/tasks/submit", json=body).status_code == 200
    server.ended("t")
    assert one.get("/tasks/t").json()["command_id"] < two.get("/tasks/t").json()["command_id"]
    assert server.client.get("/health").json() == {"status": "ok"}
    for client in (one, two, read):
        client.close()
    assert server.get("t")["status"] == "success"
