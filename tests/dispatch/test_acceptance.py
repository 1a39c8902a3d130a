"""The seed's acceptance lines, with real processes and a real probe on a port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.dispatch.governor_process import GovernorProcess, kinds, make_repository, output, probe, repos_text
from tests.running import lasting_port

pytestmark = pytest.mark.timeout(300)  # dozens of processes, on a machine that may be busy
EMIT = """
import sys, grpc
from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    event = kanban_pb2.IssueEventRequest(task_id="TEST-02", event_type="created", repo_name="kanban-pmo")
    print(kanban_pb2_grpc.IssueEventStub(channel).Emit(event).message)
"""


def _run(governor: GovernorProcess, *words: str, status: int = 0) -> str:
    program = str(Path(sys.executable).parent / words[0])
    done = subprocess.run(
        [program, *words[1:]],
        cwd=governor.root,
        env=governor.env(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout


def test_sashi_starts_emits_and_watches(governor: GovernorProcess) -> None:
    """`sashi grpc start && sashi emit TEST-01 created kanban-pmo` says `[runner] board queued`; so does the stub.

    The start returns when the server answers, board ends with 0 and its lines are on the stream; stop ends the server.
    """
    (governor.root / "config").rmdir()  # a first start: the shipped files and the example repositories are made
    with ThreadPoolExecutor(2) as starters:
        both = [starters.submit(_run, governor, "sashi", "--json", "grpc", "start", "--port", "0") for _ in range(2)]
    try:
        first, second = (json.loads(start.result().splitlines()[-1]) for start in both)
        assert first == second, "who comes second is told of the server that runs"
        assert "already running: server" in _run(governor, "sashi", "grpc", "start")
        port = first["grpc_port"]
        assert "[runner] board queued" in _run(governor, "sashi", "emit", "TEST-01", "created", "kanban-pmo")
        stub = subprocess.run(
            [sys.executable, "-c", EMIT, f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=200, check=True
        )
        assert stub.stdout == "[runner] board queued\n"
        shown = _run(governor, "debug-server", "events", "--repo", "kanban-pmo")
        assert shown.count("runner.exited board status 0") == 2
        assert "runner.stdout card TASK-TEST-01 created in backlog" in shown
        assert _run(governor, "debug-server", "events", "--repo", "kanban-pmo", "--limit", "2") == "".join(
            shown.splitlines(keepends=True)[:2]
        )
        everything = _run(governor, "debug-server", "--json", "events", "--repo", "*").splitlines()
        cursors = [json.loads(line)["cursor"] for line in everything]
        begin = next(place for place, cursor in enumerate(cursors) if cursor.isdigit())
        later = _run(governor, "debug-server", "--json", "events", "--repo", "*", "--after", cursors[begin])
        assert later.splitlines() == everything[begin + 1 :]
        _run(governor, "debug-server", "events", "--repo", "kanban-pm", status=1)
        card = governor.root / ".artifacts/examples/kanban-pmo/kanban/backlog/TASK-TEST-01.md"
        assert card.is_file()
        skipped = _run(governor, "sashi", "emit", "TEST-03", "no.skill", "kanban-pmo", status=1)
        assert "[runner] unknown skipped: no runner has the skill 'no.skill'" in skipped
        hook = "printf 'plain.sh\\nd\\351j\\340.md\\n' | sashi emit TEST-04 push kanban-pmo --paths - 2>&1"
        environ = governor.env()
        pushed = subprocess.run(["bash", "-c", hook], cwd=governor.root, env=environ, stdout=-1, check=True).stdout
        assert rb"is sent as d\xe9j\xe0.md" in pushed, "a name that is not UTF-8 does not cost the others' event"
        assert b"[runner] docs queued" in pushed
        assert "running" in _run(governor, "sashi", "grpc", "status")
        assert "0.1.0" in _run(governor, "sashi", "probe", "changelog")
    finally:
        stopped = _run(governor, "sashi", "grpc", "stop")
    assert "stopped server" in stopped
    assert "no server is running" in _run(governor, "sashi", "grpc", "stop")


def test_the_probe_runner_calls_sync_repo(governor: GovernorProcess, tmp_path: Path) -> None:
    """PROBE_HOST and PROBE_GRPC_PORT name a real probe: its response is the event's payload, its files are synced."""
    path = make_repository(tmp_path / "persist", {"notes/a.md": "a\n"})
    places: dict[str, Path | str] = {"persist-memory-probe": path, "kanban-pmo": path, "ollama-local": path}
    governor.configure(None, repos_text(places))
    with probe(tmp_path, "persist-memory-probe", path) as port:
        governor.environ = {"PROBE_HOST": "127.0.0.1", "PROBE_GRPC_PORT": str(port)}
        governor.start()
        assert governor.emit("P-1", "probe", "persist-memory-probe").message == "[runner] probe queued"
        events = governor.events(task_filter="P-1")
    assert kinds(events) == ["probe", "runner.queued", "runner.started", "runner.stdout", "runner.exited"]
    ending = json.loads(events[-1].payload)
    assert ending["ok"] and ending["response"]["ok"] and ending["response"]["files_synced"] >= 2
    assert list((tmp_path / "snapshots").rglob("a.md"))
    assert json.loads(output(events))["ok"]


def test_the_example_probe_as_documented(governor: GovernorProcess, tmp_path: Path) -> None:
    """A probe that was told of no repository asks the governor, whose shipped file has relative paths."""
    governor.configure()
    governor.port = lasting_port()
    with probe(tmp_path, GOVERNOR_GRPC_PORT=str(governor.port)) as port:
        governor.environ = {"PROBE_HOST": "127.0.0.1", "PROBE_GRPC_PORT": str(port)}
        governor.start()
        governor.emit("P-2", "probe", "persist-memory-probe")
        kind, ending = governor.run_end("P-2")
    assert kind == "runner.exited" and ending["response"]["ok"], ending
    assert list((tmp_path / "snapshots/persist-memory-probe").iterdir())


def test_runner_manager_alone_queues_what_a_server_runs(governor: GovernorProcess, tmp_path: Path) -> None:
    """RunnerManager() in a plain script answers as the seed says, and a server that starts later runs it."""
    path = make_repository(tmp_path / "repo", {"board_runner.py": "print('ran')"})
    places: dict[str, Path | str] = dict.fromkeys(("persist-memory-probe", "kanban-pmo", "ollama-local"), path)
    governor.configure(None, repos_text(places))
    script = (
        "from types import SimpleNamespace\nfrom debug_server.dispatch import RunnerManager\n"
        "manager = RunnerManager()\n"
        "assert manager.get_runner_for_skill('card.create') == 'board'\n"
        "assert manager.get_runner_for_skill('nothing') == 'unknown'\n"
        "assert manager.list_runners()[:2] == ['board', 'docs'] and 'runners' in manager.load()\n"
        "event = SimpleNamespace(task_id='M-1', event_type='created', repo_name='kanban-pmo', payload='{}')\n"
        "print(sorted(manager.dispatch(event).items()))\n"
        "print(manager.dispatch({**vars(event), 'task_id': 'M-2'})['task_id'])\n"
        "for wrong in ({}, {'colour': 'x'}, {**vars(event), 'payload': 5}, {**vars(event), 'paths': 'x'}, 5):\n"
        "    try:\n        manager.dispatch(wrong)\n    except ValueError as error:\n        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=governor.root,
        env=governor.env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second, third, fourth, *refused = done.stdout.splitlines()
    assert first == "[runner] queued runner=board skill=card.create task=M-1 repo=kanban-pmo executor=python"
    assert second == str(
        [("executor", "python"), ("queued", True), ("runner", "board"), ("skill", "card.create"), ("task_id", "M-1")]
    )
    assert ("task=M-2" in third, fourth) == (True, "M-2"), "a mapping is an event too"
    for said, what in zip(refused, ("task_id", "colour", "payload", "paths", "task_id"), strict=True):
        assert what in said
    governor.start()
    assert output(governor.events(task_filter="M-1")) == "ran\n"
    assert os.path.exists(governor.root / ".artifacts")
