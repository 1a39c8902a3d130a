"""The stream and the server around it: cursors, filters, many ways in, and what a runner may do."""

from __future__ import annotations

import hashlib
import hmac
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from debug_server.kanban import kanban_pb2 as pb
from tests.dispatch.conftest import ONE_RUNNER
from tests.dispatch.governor_process import GovernorProcess, kinds, make_repository, output, repos_text
from tests.running import eventually

Working = Callable[..., GovernorProcess]
TALK = "for n in 1 2 3; do echo out$n; echo err$n >&2; done; printf 'no end'\n"
STDIN = 'cat > got.json; echo "$DISPATCH_TASK_ID $DISPATCH_SKILL $DISPATCH_TRIGGER"\n'


def _essence(events: list[Any]) -> list[tuple[str, str, str]]:
    return [(event.task_id, event.event_type, event.payload) for event in events]


def test_a_watcher_goes_on_where_it_was(working: Working) -> None:
    """From the cursor of each event the rest follows without a gap or a repeat, also after a restart.

    `events -f` goes on by itself when the next server answers.
    """
    governor = working(TALK)
    for task in ("A", "B"):
        governor.emit(task, "work.do", "repo")
    whole = governor.events()
    assert output([event for event in whole if event.task_id == "A"]) == "out1\nout2\nout3\nno end"
    assert output([event for event in whole if event.task_id == "A"], "stderr") == "err1\nerr2\nerr3\n"
    program = [sys.executable, "-P", "-m", "debug_server", "--json", "events", "-f", "--repo", "repo"]
    target = ["--target", f"127.0.0.1:{governor.port}"]
    with subprocess.Popen(
        [*program, *target], stdout=subprocess.PIPE, env=governor.env(), cwd=governor.root
    ) as watcher:
        assert watcher.stdout is not None
        lines = [json.loads(watcher.stdout.readline()) for _ in whole]
        governor.kill()
        governor.start()
        governor.emit("C", "work.do", "repo")
        while (line := json.loads(watcher.stdout.readline())) and line["event_type"] != "runner.exited":
            lines.append(line)
        watcher.terminate()
    told = [(line["task_id"], line["event_type"], line["payload"]) for line in lines[: len(whole)]]
    assert sorted(told) == sorted(_essence(whole))
    assert {line["task_id"] for line in lines[len(whole) :]} == {"C"}
    whole += governor.events(task_filter="C")
    for index, event in enumerate(whole):
        rest = governor.events(cursor=event.cursor)
        assert sorted(_essence(rest)) == sorted(_essence(whole[index + 1 :])), event.cursor
    with pytest.raises(grpc.RpcError) as caught:
        governor.events(cursor="nonsense")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_filters(working: Working) -> None:
    """By repository, task and the beginning of the type."""
    governor = working(TALK)
    for task in ("A", "B"):
        governor.emit(task, "work.do", "repo")
    governor.events()
    assert {event.task_id for event in governor.events(task_filter="B")} == {"B"}
    assert kinds(governor.events(event_type_filter="runner.exited")) == ["runner.exited"] * 2
    assert governor.events(repo_filter="elsewhere") == []
    assert {event.event_type for event in governor.events(event_type_filter="runner.std")} == {
        "runner.stdout",
        "runner.stderr",
    }


def test_the_event_arrives_whole_on_stdin(working: Working, tmp_path: Path) -> None:
    """A payload with control characters, quotes and shell words is data: in stdin's JSON, exactly."""
    governor = working(STDIN)
    payload = json.dumps({"x": "a\x00b\x1b[31m $(touch pwned) `id` ' \" \\ \n"}) + "\x01\x7f"
    assert governor.emit("T-1", "work.do", "repo", payload=payload, field="$(touch pwned)").ok
    events = governor.events(task_filter="T-1")
    got = json.loads((tmp_path / "repo/got.json").read_text())
    assert (got["payload"], got["field"], got["runner"]) == (payload, "$(touch pwned)", "work")
    assert output(events) == "T-1 work.do event\n"
    assert not (tmp_path / "repo/pwned").exists()
    assert events[0].payload == payload


def test_events_that_make_no_sense_are_answered(working: Working) -> None:
    """No type, an unknown repository, ten mebibytes, a path as a name: ok=false and why; then all is well."""
    governor = working("echo fine\n")
    for task, kind, repo, fields in [
        ("T", "", "repo", {}),
        ("T", "work.do", "nowhere", {}),
        ("T", "work.do", "../repo", {}),
        ("", "work.do", "repo", {}),
        ("T", "runner.exited", "repo", {}),
        ("T", "work.do", "repo", {"payload": "x" * (10 << 20)}),
        ("T\n[runner] fake", "work.do", "repo", {}),
    ]:
        answer = governor.emit(task, kind, repo, **fields)
        assert not answer.ok and answer.error, (task, kind, repo)
    assert governor.events() == []
    assert governor.emit("T", "work.do", "repo").message == "[runner] work queued"


def test_a_runner_that_detaches_leaves_nothing(working: Working) -> None:
    """What a runner starts in a session of its own ends with it; `nothing_left` looks for it."""
    governor = working("setsid sleep 600 & echo left\n")
    governor.emit("D", "work.do", "repo")
    found, payload = governor.run_end("D")
    assert (found, payload["exit_code"]) == ("runner.exited", 0)


def test_bounds_of_a_runner(working: Working, tmp_path: Path) -> None:
    """More than `queue` waiting events are refused as an error event; `concurrency` bounds how many run at a time."""
    held = "until [ -e go ]; do sleep 0.02; done\n"
    governor = working(held, ONE_RUNNER + "    queue: 2\n    concurrency: 1\n")
    answers = [governor.emit(f"Q-{number}", "work.do", "repo").message for number in range(8)]
    (tmp_path / "repo/go").touch()
    refused = [answer for answer in answers if answer.startswith("[runner] work error: ")]
    assert refused and "is full: " in refused[0]
    events = governor.events(event_type_filter="runner.")
    assert kinds(events).count("runner.error") == len(refused)
    assert kinds(events).count("runner.exited") == 8 - len(refused)
    now = 0
    for kind in kinds(events):
        now += (kind == "runner.started") - (kind == "runner.exited")
        assert now <= 1


def test_a_leased_workspace_leaves_the_repository_alone(working: Working, tmp_path: Path) -> None:
    """With `workspace: leased` the runner works in a private checkout of the branch."""
    governor = working("echo changed > README.md; cat README.md\n", ONE_RUNNER + "    workspace: leased\n")
    governor.emit("W", "work.do", "repo")
    assert output(governor.events(task_filter="W")) == "changed\n"
    assert (tmp_path / "repo/README.md").read_text() == "# here\n"


def test_over_http(working: Working) -> None:
    """Emitted as JSON, watched as server-sent events that resume by Last-Event-ID, pushed by a signed hook."""
    pushes = ONE_RUNNER + '    triggers:\n      - type: push\n        paths: ["*.md"]\n'
    paths = [f"src/{number}.py" for number in range(11_000)]
    body = json.dumps({"after": "a" * 40, "commits": [{"added": [*paths, "x.md"]}]}).encode()

    def watched(**headers: str) -> list[tuple[str, str]]:
        text = client.get("/kanban/events", params={"follow": "false"}, headers=headers).text
        return [tuple(part.partition(": ")[2] for part in frame.split("\n")[:2]) for frame in text.split("\n\n")[:-1]]  # type: ignore[misc]

    governor = working("echo hello\n", pushes)
    governor.stop()
    governor.environ = {"DEBUG_SERVER_HOOK_SECRET": "s3cret"}
    governor.start()
    with httpx.Client(base_url=governor.http, timeout=60) as client:
        event = {"task_id": "H", "event_type": "work.do", "repo_name": "repo"}
        answer = client.post("/kanban/events", json=event)
        assert (answer.status_code, answer.json()["message"]) == (202, ["[runner] work queued"])
        frames = watched()
        assert [kind for _, kind in frames][-2:] == ["runner.stdout", "runner.exited"]
        assert watched(**{"Last-Event-ID": frames[2][0]}) == frames[3:]
        signed = {"X-Hub-Signature-256": "sha256=" + hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()}
        pushed = client.post("/hooks/repo", content=body, headers={**signed, "X-GitHub-Event": "push"})
        assert pushed.json()["message"] == ["[runner] work queued"], "the last of many paths is the one that matters"
        push = pb.IssueEventRequest(task_id="G", event_type="push", repo_name="repo", paths=[*paths, "x.md"])
        assert governor.stub("IssueEvent").Emit(push, timeout=60).message == "[runner] work queued"
        assert client.post("/hooks/repo", content=body, headers=signed).status_code == 422, "what happened is not said"
        assert client.post("/hooks/repo", content=body + b" ", headers=signed).status_code == 401
        assert client.post("/kanban/events", json=event, headers={"Host": "evil.example"}).status_code == 401
        assert client.post("/kanban/events", json=event, headers={"Authorization": "Bearer x"}).status_code == 401
        assert client.post("/kanban/events", json={**event, "repo_name": "nowhere"}).status_code == 404


def test_a_hook_without_proof_holds_nothing(working: Working) -> None:
    """Off, unsigned or too large: refused before the body is there. Of slow bodies, the oldest makes room."""
    governor = working("echo hello\n")
    port = httpx.URL(governor.http).port or 0
    with ExitStack() as stack:

        def status(*headers: str, length: int = 1000) -> tuple[socket.socket, Callable[[], bytes]]:
            """A request whose body is never complete, and what it is answered."""
            made = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            head = ["POST /hooks/repo HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *headers]
            made.sendall("\r\n".join([*head, "", "x"]).encode())
            return made, lambda: made.recv(4096).split(b" ", 2)[1]

        def reading(made: socket.socket, answered: Callable[[], bytes]) -> tuple[socket.socket, Callable[[], bytes]]:
            """The same, once the server reads its body: those that it meets together it takes in any order."""
            assert answered() == b"100"
            return made, answered

        assert status()[1]() == b"401", "hooks are off"
        governor.stop()
        governor.environ = {"DEBUG_SERVER_HOOK_SECRET": "s3cret"}
        governor.start()
        port = httpx.URL(governor.http).port or 0
        signed = "X-Hub-Signature-256: sha256=" + "0" * 64
        assert status()[1]() == b"401", "no signature"
        assert status(signed, length=(4 << 20) + 1)[1]() == b"413"
        slow = [reading(*status(signed, "Expect: 100-continue")) for _ in range(9)]
        assert slow[0][1]() == b"503", "the oldest makes room for the ninth"
        slow[8][0].sendall(b"x" * 999)
        assert slow[8][1]() == b"401", "a signature that does not fit"


def test_files_are_read_anew(working: Working) -> None:
    """A changed file is in force with the next event, on SIGHUP too; an invalid one changes nothing."""
    governor = working("echo fine\n")
    runners = governor.root / "config/runners.yml"
    runners.write_text(ONE_RUNNER.replace("work.do", "other.do"))
    assert "queued" in governor.emit("A", "other.do", "repo").message
    runners.write_text(ONE_RUNNER.replace("bash", "perl"))
    governor.signal(signal.SIGHUP)
    assert "queued" in governor.emit("B", "other.do", "repo").message
    health = httpx.get(f"{governor.http}/healthz", timeout=60).json()["dispatch"]
    assert "runners.yml:4" in health["configuration"]


def test_a_schedule_runs_once_for_what_was_missed(governor: GovernorProcess, tmp_path: Path) -> None:
    """A time that passed while no server ran is caught up once by the next."""
    path = make_repository(tmp_path / "repo", {"work.sh": "echo $DISPATCH_TRIGGER\n"})
    governor.configure(
        ONE_RUNNER + "    triggers:\n      - {type: schedule, cron: '0 0 1 1 *'}\n", repos_text({"repo": path})
    )
    governor.start()
    governor.stop()
    database = governor.root / ".artifacts/data/metadata.db"
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sqlite3; c = sqlite3.connect({str(database)!r}); "
            "c.execute('UPDATE schedules SET next_at = next_at - 3 * 366 * 86400'); c.commit()",
        ],
        check=True,
    )
    governor.start()
    found = lambda: [event for event in governor.events() if event.event_type == "runner.exited"]  # noqa: E731
    assert len(eventually(found, what="the scheduled run")) == 1
    told = governor.events()
    task, due = told[0].task_id, datetime.fromisoformat(told[0].timestamp)
    assert task == f"schedule-work-work.do-{due:%Y%m%dT%H%MZ}", "the event is dated by the time that was due"
    assert [json.loads(event.payload)["chunk"] for event in told if event.event_type == "runner.stdout"] == [
        "schedule\n"
    ]


def test_repositories_and_files_over_grpc(working: Working, tmp_path: Path) -> None:
    """The registry reads and writes repos.yml; FileWrite writes inside a repository only; the version is told."""
    governor = working("echo fine\n")
    registry, files = governor.stub("RepoRegistry"), governor.stub("FileWrite")
    assert [repo.name for repo in registry.ListRepos(pb.ListReposRequest()).repos] == ["repo"]
    other = make_repository(tmp_path / "other", {"work.sh": "echo other\n"})
    added = registry.AddRepo(pb.AddRepoRequest(repo=pb.RepoEntry(name="other", local_path=str(other))))
    assert added.ok, added.error
    assert not registry.AddRepo(pb.AddRepoRequest(repo=pb.RepoEntry(name="other", local_path="x"))).ok
    assert registry.UpdateRepo(pb.UpdateRepoRequest(name="other", fields={"role": "telemetry"})).ok
    assert registry.GetRepo(pb.GetRepoRequest(name="other")).role == "telemetry"
    gone: list[Callable[[], Any]] = [
        lambda: registry.GetRepo(pb.GetRepoRequest(name="gone")),
        lambda: registry.UpdateRepo(pb.UpdateRepoRequest(name="gone", fields={"role": "x"})),
    ]
    for call in gone:
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert governor.emit("N", "work.do", "other").message == "[runner] work queued"
    written = files.Write(pb.WriteRequest(repo_name="other", relative_path="a/b", content="x"))
    assert written.ok and Path(written.written_path).read_text() == "x"
    assert not files.Write(pb.WriteRequest(repo_name="other", relative_path="../b", content="x")).ok
    assert files.SetEnvKey(pb.SetEnvKeyRequest(repo_name="other", key="A", value="1")).ok
    assert files.MergeLines(pb.MergeRequest(repo_name="other", lines=["*.log"])).ok
    assert not files.MergeLines(pb.MergeRequest(repo_name="gone", lines=["*.log"])).ok
    assert governor.stub("VersionService").GetVersion(pb.GetVersionRequest()).version
    governor.events()
