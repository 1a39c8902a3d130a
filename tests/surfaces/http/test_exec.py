"""``POST /exec``: one request runs a command and is answered with its output."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from debug_server.engine.command_threads import CommandThreads
from debug_server.messages import COMMANDS_WRITE, SCOPES, SESSIONS_READ, SESSIONS_WRITE
from debug_server.store.keyed_requests import KeyedRequests
from tests.running import eventually
from tests.surfaces.http.serving import SECONDS, Served, answered, refused

ALL = {"wait": SECONDS}


def execute(served: Served, *argv: str, session: int | None = None, **fields: Any) -> dict[str, Any]:
    """The answer of one request."""
    path = "/api/v1/exec" if session is None else f"/api/v1/sessions/{session}/exec"
    return answered(served.admin.post(path, json={"argv": list(argv), **ALL, **fields}), 200)


def running(served: Served, session: int) -> int:
    """The id of the session's command, once it runs."""

    def found() -> int | None:
        rows = answered(served.admin.get(f"/sessions/{session}/commands"), 200)["items"]
        return next((row["id"] for row in rows if row["status"] == "running"), None)

    return int(eventually(found, what="a running command"))


def ended(served: Served, command: int) -> dict[str, Any]:
    """A command once it has ended."""
    return answered(served.admin.get(f"/commands/{command}/wait", params={"timeout": SECONDS}), 200)


def until(path: Path) -> list[str]:
    """A command that ends once the file exists."""
    return ["sh", "-c", f"echo begun; while [ ! -e {path} ]; do sleep 0.02; done; echo done"]


def test_one_request_one_answer(served: Served) -> None:
    """Exit code, reason, times and both streams; the row, the log and the events are those of every command."""
    session = served.session()
    script = "echo out; echo err >&2; echo more; exit 3"
    found = execute(served, "sh", "-c", script, session=session, merged=True)
    assert (found["exit_code"], found["exit_reason"], found["status"], found["ended"]) == (
        3,
        "nonzero_exit",
        "failed",
        True,
    )
    assert (found["stdout"], found["stderr"], found["message"]) == ("out\nmore\n", "err\n", "exited with status 3")
    assert (found["stdout_bytes"], found["stderr_bytes"], found["log_bytes"], found["left_out"]) == (9, 4, 13, [])
    assert "".join(piece["data"] for piece in found["merged"] if piece["stream"] == "stderr") == "err\n"
    assert "".join(piece["data"] for piece in found["merged"] if piece["stream"] == "stdout") == "out\nmore\n"
    assert found["queued_seconds"] >= 0 and found["wall_seconds"] > 0 and found["session_id"] == session
    row = answered(served.admin.get(f"/commands/{found['command_id']}"), 200)
    assert (row["exit_code"], row["session_id"], row["log_bytes"]) == (3, session, 13)
    log = served.admin.get(f"/commands/{row['id']}/log").text
    assert "".join(piece["data"] for piece in found["merged"]) == log and len(log) == 13
    kinds = answered(served.admin.get("/events", params={"command_id": row["id"]}), 200)["items"]
    assert [item["kind"] for item in kinds] == ["command.pending", "command.started", "command.finished"]


def test_a_new_folder(served: Served) -> None:
    """Without session and repository a command has an empty private folder, which is gone with its session."""
    found = execute(served, "sh", "-c", "pwd; stat -c %a .; ls -A; echo x > made", artifacts=["made"])
    folder, mode = found["stdout"].split()
    assert (mode, found["exit_code"]) == ("700", 0)
    session = answered(served.admin.get(f"/sessions/{found['session_id']}"), 200)
    assert session["status"] == "completed"
    assert not Path(folder).exists()
    kept = answered(served.admin.get(f"/sessions/{found['session_id']}/artifacts"), 200)["items"]
    assert "made" in [item["name"] for item in kept]
    refused(served.admin.post("/exec", json={"argv": ["true"], "cwd": "../.."}), 422, "invalid_input")


def test_a_new_workspace(served: Served) -> None:
    """With a repository it has a workspace of the commit and the patch, which is released at the end."""
    patch = "--- a/README\n+++ b/README\n@@ -1 +1 @@\n-three\n+four\n"
    found = execute(served, "cat", "README", repository="repo", commit="main", patch=patch)
    assert found["stdout"] == "four\n"
    assert execute(served, "cat", "README", repository="repo")["stdout"] == "three\n"
    assert answered(served.admin.get(f"/sessions/{found['session_id']}"), 200)["status"] == "completed"


def test_bytes_that_are_not_utf8_survive(served: Served) -> None:
    """They come as base64, and the stream beside them as text."""
    found = execute(served, "sh", "-c", "printf 'a\\377\\000b'; printf 'grün' >&2", merged=True)
    assert (found["stdout_encoding"], found["stderr_encoding"], found["stderr"]) == ("base64", "utf-8", "grün")
    assert base64.b64decode(found["stdout"]) == b"a\xff\x00b"
    assert {piece["stream"]: piece["encoding"] for piece in found["merged"]} == {"stdout": "base64", "stderr": "utf-8"}


def test_the_ends_of_long_output(served: Served) -> None:
    """Of 50 MB the first and the last bytes, and where in the log the rest is."""
    size = 50_000_000
    script = f"echo start; head -c {size} /dev/zero | tr '\\0' x; echo end"
    found = execute(served, "sh", "-c", script, output_bytes=10)
    assert (found["stdout"], found["stdout_tail"], found["stdout_bytes"]) == ("start\nxxxx", "xxxxxxend\n", size + 10)
    (part,) = found["left_out"]
    assert (part["stream"], part["bytes"], part["end"] - part["start"]) == ("stdout", size - 10, size - 10)
    headers = {"Range": f"bytes={part['start'] - 4}-{part['start'] - 1}"}
    assert served.admin.get(f"/commands/{found['command_id']}/log", headers=headers).content == b"xxxx"
    assert execute(served, "echo", "x", output_bytes=0)["stdout"] == ""


def test_a_digest_on_request(served: Served) -> None:
    """Of the whole log, also of what the answer leaves out; of a command without output, too."""
    found = execute(served, "sh", "-c", "seq 1000; echo 'error: no'; seq 1000", output_bytes=0, digest=True)
    assert found["digest"]["first_error"]["text"] == "error: no" and found["digest"]["lines"] == 2001
    assert execute(served, "true", digest=True)["digest"]["lines"] == 0
    assert execute(served, "true")["digest"] is None


def test_a_log_that_was_removed(served: Served) -> None:
    """A repetition is answered all the same: with what the log had, none of it, and no digest."""
    session, headers = served.session(), {"Idempotency-Key": "kept"}
    body = {"argv": ["sh", "-c", "echo out; echo err >&2"], "digest": True, "merged": True, **ALL}
    first = answered(served.admin.post(f"/sessions/{session}/exec", json=body, headers=headers), 200)
    assert first["digest"]["lines"] == 2 and first["left_out"] == []
    log = served.local.store.commands.get(first["command_id"]).log_path
    assert log is not None
    Path(log).unlink()
    found = answered(served.admin.post(f"/sessions/{session}/exec", json=body, headers=headers), 200)
    assert (found["command_id"], found["exit_code"], found["digest"]) == (first["command_id"], 0, None)
    assert (found["stdout"], found["stdout_bytes"], found["stderr_bytes"], found["merged"]) == ("", 4, 4, [])
    assert [(part["stream"], part["bytes"]) for part in found["left_out"]] == [
        ("stdout", 4),
        ("stderr", 4),
        ("merged", 8),
    ]


def test_the_timeout_is_the_commands(served: Served) -> None:
    """It ends the command; by its other name too, but not by both."""
    found = execute(served, "sleep", "1000", timeout=0.2)
    assert (found["exit_reason"], found["exit_code"], found["ended"]) == ("timed_out", None, True)
    body = {"argv": ["true"], "timeout": 1, "limits": {"wall_seconds": 1}}
    assert "give one of them" in refused(served.admin.post("/exec", json=body), 422, "invalid_input")["message"]


def test_the_wait_is_the_requests(served: Served) -> None:
    """After it the command is answered as it is; the same key continues to wait, and wait_command does as well."""
    session, gate = served.session(), served.root / "gate"
    headers = {"Idempotency-Key": "one"}
    body: dict[str, Any] = {"argv": until(gate), "wait": 0.2}
    first = answered(served.admin.post(f"/sessions/{session}/exec", json=body, headers=headers), 200)
    assert (first["ended"], first["exit_code"], first["finished_at"]) == (False, None, None)
    again = answered(served.admin.post(f"/sessions/{session}/exec", json=body, headers=headers), 200)
    assert (again["ended"], again["command_id"]) == (False, first["command_id"])
    gate.touch()
    assert ended(served, first["command_id"])["exit_code"] == 0
    last = {**body, "wait": SECONDS, "output_bytes": 100, "merged": True}
    found = answered(served.admin.post(f"/sessions/{session}/exec", json=last, headers=headers), 200)
    assert (found["ended"], found["stdout"]) == (True, "begun\ndone\n")
    other = {**body, "argv": ["true"]}
    refused(served.admin.post(f"/sessions/{session}/exec", json=other, headers=headers), 409, "conflict")
    assert len(answered(served.admin.get(f"/sessions/{session}/commands"), 200)["items"]) == 1


@pytest.mark.parametrize("place", ["session", "folder"])
def test_a_key_of_another_request(served: Served, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Found only when the command is added, because two requests begin at the same time: one of them runs."""
    path = "/exec" if place == "folder" else f"/sessions/{served.session()}/exec"
    headers, body = {"Idempotency-Key": "raced"}, {"argv": ["echo", "once"], **ALL}
    first = answered(served.admin.post(path, json=body, headers=headers), 200)
    monkeypatch.setattr(KeyedRequests, "is_known", lambda *_: False)
    assert answered(served.admin.post(path, json=body, headers=headers), 200) == first
    refused(served.admin.post(path, json={**body, "argv": ["true"]}, headers=headers), 409, "conflict")
    assert len(answered(served.admin.get("/commands"), 200)["items"]) == 1


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_without_a_thread_it_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch, accept: str) -> None:
    """When its wait is over, also with a key and as a stream; the key may then be used again, and nothing has run."""
    session, headers = served.session(), {"Idempotency-Key": "late", "Accept": accept}
    body = {"argv": ["true"], "wait": 0.1}
    with monkeypatch.context() as patched:
        patched.setattr(CommandThreads, "_try_start", lambda *_: False)
        refusal = served.admin.post(f"/sessions/{session}/exec", json=body, headers=headers)
        assert refused(refusal, 503, "resources_exhausted")["retryable"] is True
    body["wait"] = SECONDS
    again = {"Idempotency-Key": "late"}
    found = answered(served.admin.post(f"/sessions/{session}/exec", json=body, headers=again), 200)
    assert found["exit_code"] == 0
    assert len(answered(served.admin.get(f"/sessions/{session}/commands"), 200)["items"]) == 1


def test_two_requests_with_one_key(served: Served) -> None:
    """Sent at the same time they run one command, and both get its answer."""
    session, gate = served.session(), served.root / "gate"

    def post(number: int) -> dict[str, Any]:
        body = {"argv": until(gate), "wait": SECONDS, "merged": bool(number)}
        headers = {"Idempotency-Key": "both"}
        return answered(served.admin.post(f"/sessions/{session}/exec", json=body, headers=headers), 200)

    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(post, number) for number in range(2)]
        running(served, session)
        gate.touch()
        one, two = (item.result(SECONDS) for item in answers)
    assert one["command_id"] == two["command_id"] and one["stdout"] == two["stdout"] == "begun\ndone\n"
    assert len(answered(served.admin.get(f"/sessions/{session}/commands"), 200)["items"]) == 1


def test_it_waits_its_turn(served: Served) -> None:
    """Behind another command of its session; that time counts against the wait."""
    session, gate = served.session(), served.root / "gate"
    first = served.submit(session, *until(gate))
    running(served, session)
    found = execute(served, "echo", "second", session=session, wait=0.2)
    assert (found["status"], found["started_at"], found["stdout"]) == ("pending", None, "")
    gate.touch()
    assert ended(served, found["command_id"])["exit_code"] == 0
    assert ended(served, first)["finished_at"] <= ended(served, found["command_id"])["started_at"]


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_an_end_from_outside(served: Served, how: str) -> None:
    """A command that is cancelled, or whose session is closed, is answered as cancelled."""
    session = served.session()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(execute, served, "sleep", "1000", session=session)
        command = running(served, session)
        if how == "cancel":
            served.admin.post(f"/commands/{command}/cancel")
        else:
            served.admin.delete(f"/sessions/{session}")
        found = answer.result(SECONDS)
    assert (found["status"], found["exit_reason"], found["ended"]) == ("cancelled", "cancelled", True)
    if how == "close":
        refused(served.admin.post(f"/sessions/{session}/exec", json={"argv": ["true"]}), 409, "conflict")


@contextmanager
def lost(
    served: Served,
    session: int,
    body: dict[str, Any],
    *,
    accept: str = "*/*",
    headers: dict[str, str] | None = None,
    when: Callable[[], bool] = lambda: True,
) -> Iterator[int]:
    """The command of a request whose connection is cut while the command runs, and ``when`` holds."""
    data = json.dumps(body).encode()
    head = [
        f"POST /sessions/{session}/exec HTTP/1.1",
        "Host: x",
        f"Authorization: {served.admin.headers['Authorization']}",
        "Content-Type: application/json",
        f"Accept: {accept}",
        f"Content-Length: {len(data)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    with socket.create_connection(("127.0.0.1", served.port), SECONDS) as connection:
        connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + data)
        command = running(served, session)
        eventually(when, what="the request")
    yield command


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_a_lost_connection_leaves_it_running(served: Served, accept: str) -> None:
    """That is the default: nothing is lost."""
    session, gate = served.session(), served.root / "gate"
    with lost(served, session, {"argv": until(gate)}, accept=accept) as command:
        execute(served, "true")  # time in which the server would cancel it
        gate.touch()
        assert ended(served, command)["exit_code"] == 0


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_a_lost_connection_cancels_it_on_request(served: Served, accept: str) -> None:
    """With ``on_disconnect``: its tree ends."""
    session = served.session()
    body = {"argv": ["sleep", "1000"], "on_disconnect": "cancel"}
    with lost(served, session, body, accept=accept) as command:
        assert ended(served, command)["exit_reason"] == "cancelled"


def test_another_request_with_its_key_keeps_it(served: Served) -> None:
    """Of two requests that wait for one command one is lost, whose client wanted it to be cancelled: it goes on."""
    session, gate = served.session(), served.root / "gate"
    body: dict[str, Any] = {"argv": until(gate), "wait": SECONDS}
    headers = {"Idempotency-Key": "both"}

    def post() -> dict[str, Any]:
        return answered(served.admin.post(f"/sessions/{session}/exec", json=body, headers=headers), 200)

    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(post)
        command = running(served, session)
        execs = served.local.service.execs

        def waiting() -> int:
            return sum(execs._waiting.values())

        abandoned = {**body, "on_disconnect": "cancel"}
        with lost(served, session, abandoned, headers=headers, when=lambda: waiting() == 2):
            pass
        eventually(lambda: waiting() == 1 and not execs._cancelling, what="the lost connection")
        gate.touch()
        assert (answer.result(SECONDS)["command_id"], answer.result(SECONDS)["exit_code"]) == (command, 0)


def test_a_child_in_the_background_does_not_hold_the_answer(served: Served) -> None:
    """The answer comes when the command has ended, although its child keeps the pipe open."""
    found = execute(served, "sh", "-c", "sleep 1000 & echo hi")
    assert (found["exit_code"], found["stdout"]) == (0, "hi\n")


def test_who_may(served: Served) -> None:
    """All four scopes are needed; the sessions of others are not found."""
    session = served.session()
    for missing in (COMMANDS_WRITE, SESSIONS_WRITE, SESSIONS_READ, "artifacts:read"):
        with served.client([scope for scope in SCOPES if scope not in (missing, "admin")]) as client:
            error = refused(client.post("/exec", json={"argv": ["true"]}), 403, "forbidden")
            assert missing in error["message"]
    with served.client([scope for scope in SCOPES if scope != "admin"]) as client:
        for path, place in ((f"/sessions/{session}/exec", {}), ("/exec", {"session_id": session})):
            refused(client.post(path, json={"argv": ["true"], **place}), 404, "not_found")
        found = answered(client.post("/exec", json={"argv": ["echo", "mine"]}), 200)
        assert found["stdout"] == "mine\n"
    with served.client(quotas={"commands": 1, "sessions": 1}) as client:
        gate = served.root / "gate"
        body: dict[str, Any] = {"argv": until(gate), "wait": 0.1}
        held = answered(client.post("/exec", json=body), 200)
        refused(client.post("/exec", json={"argv": ["true"]}), 429, "quota_exceeded")
        gate.touch()
        ended(served, held["command_id"])
    assert httpx.post(f"{served.url}/exec", json={"argv": ["true"]}, timeout=SECONDS).status_code == 401


@pytest.mark.parametrize(
    "fields",
    [
        {"output_bytes": -1},
        {"output_bytes": 1 << 40},
        {"output_bytes": 1e3},
        {"wait": 0},
        {"wait": 1e9},
        {"wait": "1"},
        {"timeout": -1},
        {"on_disconnect": "pause"},
        {"argv": []},
        {"argv": ["x" * 200_000]},
        {"argv": ["a\0b"]},
        {"commit": "main"},
        {"session_id": 1, "repository": "repo"},
        {"session_id": 0},
        {"outputbytes": 1},
    ],
)
def test_wrong_values_are_refused(shared: Served, fields: dict[str, Any]) -> None:
    """Before anything runs."""
    before = len(answered(shared.admin.get("/sessions"), 200)["items"])
    refused(shared.admin.post("/exec", json={"argv": ["true"], **fields}), 422, "invalid_input")
    assert len(answered(shared.admin.get("/sessions"), 200)["items"]) == before


def events_of(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of a stream as they come, to its end."""
    kind = ""
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def test_a_stream_of_events(served: Served) -> None:
    """The ids, the output as it is written, whatever its bytes, and at last the same answer."""
    gate, events = served.root / "gate", []
    rest = "printf '\\274n\\n'; printf '\\377\\376' >&2; printf '\\303'"
    script = f"printf 'gr\\303'; while [ ! -e {gate} ]; do sleep 0.02; done; {rest}"
    headers = {"Accept": "text/event-stream"}
    with served.admin.stream("POST", "/exec", json={"argv": ["sh", "-c", script]}, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for event in events_of(response):
            events.append(event)
            if event[1].get("data") == "gr":
                gate.touch()
    assert [events[0][0], events[-1][0]] == ["begun", "end"]
    written = {"stdout": b"", "stderr": b""}
    for kind, fields in events[1:-1]:
        assert kind == "output"
        plain = fields["encoding"] == "utf-8"
        written[fields["stream"]] += fields["data"].encode() if plain else base64.b64decode(fields["data"])
    assert written == {"stdout": "grün\n".encode() + b"\xc3", "stderr": b"\xff\xfe"}
    answer = events[-1][1]
    assert (answer["exit_code"], answer["command_id"]) == (0, events[0][1]["command_id"])
    assert base64.b64decode(answer["stdout"]) == written["stdout"]
    with served.admin.stream("POST", "/sessions/999/exec", json={"argv": ["true"]}, headers=headers) as response:
        assert response.status_code == 404


def test_a_stream_without_room_runs_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before the command begins: who retries must not run it twice."""
    monkeypatch.setattr(served.local.service.followers, "limit", 0)
    session = served.session()
    refusal = served.admin.post(
        f"/sessions/{session}/exec", json={"argv": ["true"]}, headers={"Accept": "text/event-stream"}
    )
    assert refused(refusal, 429, "too_many_followers")["retryable"] is True
    assert answered(served.admin.get(f"/sessions/{session}/commands"), 200)["items"] == []


def test_a_stream_of_much_output(served: Served) -> None:
    """Each byte arrives once and in order."""
    headers = {"Accept": "text/event-stream"}
    body = {"argv": ["seq", "200000"], "output_bytes": 0}
    with served.admin.stream("POST", "/exec", json=body, headers=headers) as response:
        events = list(events_of(response))
    text = "".join(fields["data"] for kind, fields in events if kind == "output")
    assert text == "".join(f"{number}\n" for number in range(1, 200_001))


def test_the_end_of_a_wait_ends_a_stream(served: Served) -> None:
    """With the answer of a command that still runs."""
    gate = served.root / "gate"
    headers = {"Accept": "text/event-stream"}
    body = {"argv": until(gate), "wait": 0.3}
    with served.admin.stream("POST", "/exec", json=body, headers=headers) as response:
        answer = list(events_of(response))[-1]
    assert answer[0] == "end" and answer[1]["ended"] is False
    gate.touch()
    assert ended(served, answer[1]["command_id"])["exit_code"] == 0


def test_eight_at_once(served: Served) -> None:
    """Each gets its own output."""
    sessions = [served.session() for _ in range(4)]
    barrier = threading.Barrier(8)

    def work(number: int) -> list[str]:
        barrier.wait(SECONDS)
        return [
            execute(served, "echo", f"{number} {turn}", session=sessions[number % 4])["stdout"] for turn in range(5)
        ]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(work, range(8)))
    assert found == [[f"{number} {turn}\n" for turn in range(5)] for number in range(8)]
