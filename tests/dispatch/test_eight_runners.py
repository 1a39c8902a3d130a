"""All eight runners through Emit, each with its effect; then each broken in every way, and the server lives on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from debug_server.kanban import kanban_pb2 as pb
from tests.dispatch.governor_process import (
    SHIPPED,
    TERMINAL,
    GovernorProcess,
    make_repository,
    output,
    probe,
    repos_text,
)
from tests.dispatch.probes import strange_probe

pytestmark = pytest.mark.timeout(300)  # dozens of processes, on a machine that may be busy
PROGRAMS = Path(__file__).parent / "programs"
# runner -> (event type, repository, what it runs)
RUNNERS = {
    "board": ("created", "kanban-pmo", "board_runner.py"),
    "model": ("model", "ollama-local", "scripts/rebuild-models.sh"),
    "infra": ("ignore", "kanban-pmo", "infra_runner.py"),
    "verify": ("tick", "kanban-pmo", "scripts/verify.sh"),
    "security": ("audit", "kanban-pmo", "security_runner.py"),
    "docs": ("doc", "kanban-pmo", "docs_runner.py"),
    "governance": ("plan", "kanban-pmo", "governance_runner.py"),
}
SHELL = {
    "exit_three": "echo the reason is three >&2; exit 3",
    "hang": "trap '' TERM; echo hanging; sleep 600",
    "kill_itself": "echo before the kill; kill -KILL $$",
    "flood": "yes $(printf '%0999d' 0) | head -c 100000000; echo the last line",
}
REPOSITORIES = ("kanban-pmo", "ollama-local", "persist-memory-probe")
FLOOD = 100_000_000  # bytes
NO = pb.SyncRepoResponse(error="disk full").SerializeToString()
# way -> type, reason and ok of the seven programs' ends; what the probe does instead; type and reason of its call's end
WAYS: dict[str, tuple[tuple[str, str, bool], bytes | str, tuple[str, str]]] = {
    "exit_three": (("runner.exited", "nonzero_exit", False), NO, ("runner.exited", "nonzero_exit")),
    "hang": (("runner.timeout", "timed_out", False), "never", ("runner.timeout", "timed_out")),
    "kill_itself": (("runner.exited", "signaled", False), "dies", ("runner.error", "nonzero_exit")),
    "flood": (("runner.exited", "exited", True), b"x" * FLOOD, ("runner.error", "nonzero_exit")),
}


def test_all_eight_do_their_work(governor: GovernorProcess, tmp_path: Path) -> None:
    """One run: every runner ends with status 0 and its effect is there."""
    board = make_repository(tmp_path / "kanban-pmo", {"deploy.sh": "#!/bin/sh\nexit 0\n", "notes.md": "# Notes\n"})
    local = make_repository(tmp_path / "ollama-local", {"Modelfile": "FROM scratch\n"})
    memory = make_repository(tmp_path / "persist-memory-probe", {"a.txt": "a\n"})
    governor.configure(None, repos_text({"kanban-pmo": board, "ollama-local": local, "persist-memory-probe": memory}))
    with probe(tmp_path, "persist-memory-probe", memory) as port:
        governor.environ = {"PROBE_HOST": "127.0.0.1", "PROBE_GRPC_PORT": str(port)}
        governor.start()
        for name, (kind, repo, _) in RUNNERS.items():
            assert governor.emit(f"E-{name}", kind, repo).message == f"[runner] {name} queued"
        assert governor.emit("E-probe", "probe", "persist-memory-probe").ok
        said = {name: governor.events(task_filter=f"E-{name}") for name in (*RUNNERS, "probe")}
    for name, events in said.items():
        ending = json.loads(events[-1].payload)
        assert (events[-1].event_type, ending["exit_code"]) == ("runner.exited", 0), (name, ending)
    assert (board / "kanban/backlog/TASK-E-board.md").is_file()
    assert "ollama is not installed" in output(said["model"]) or "built" in output(said["model"])
    assert "managed" in output(said["infra"]) and (board / ".gitignore").is_file()
    assert "deploy.sh" in output(said["verify"]) or "shell" in output(said["verify"])
    assert output(said["security"]) and output(said["docs"])
    assert list((board / "sprints").glob("*-plan.md"))
    assert (tmp_path / "snapshots").is_dir() and json.loads(output(said["probe"]))["files_synced"] >= 1


def _configure(
    governor: GovernorProcess, root: Path, port: int, *, timeout: float = 100.0, call: float = 100.0
) -> None:
    """The shipped runners with one timeout, in repositories whose own programs come first, and a probe at a port.

    ``call`` is the timeout of the probe's call: what must be received before it ends needs time to get there.
    """
    text = (SHIPPED / "runners.yml").read_text().replace("timeout: 600", "").replace("timeout: 300", "")
    text = text.replace("    priority:", f"    timeout: {timeout}\n    priority:")
    head, mark, probes = text.partition("\n  probe:\n")
    probes = probes.replace(f"timeout: {timeout}", f"timeout: {call}")
    text = f"{head}{mark}{probes}".replace("persist-memory-probe:50052", f"127.0.0.1:{port}")
    governor.configure(text, repos_text({name: root / name for name in REPOSITORIES}))


def _plant(root: Path, runner: str, way: str) -> None:
    _, repo, program = RUNNERS[runner]
    target = root / repo / program
    target.parent.mkdir(exist_ok=True)
    target.write_text(SHELL[way] if program.endswith(".sh") else (PROGRAMS / f"{way}.py").read_text())


def test_each_of_the_eight_broken_in_every_way(governor: GovernorProcess, tmp_path: Path) -> None:
    """Exit 3, hanging, SIGKILL and 100 MB of output, all eight at once: the right event, and the next Emit is answered.

    Of the probe: an answer that says no, none, a probe that dies during the call, an answer of 100 MB; called once.
    """
    for repo in REPOSITORIES:
        make_repository(tmp_path / repo)
    _configure(governor, tmp_path, 1)
    governor.start()
    for way, (expected, behaviour, of_probe) in WAYS.items():
        with strange_probe(behaviour) as (port, calls):
            limits = {"timeout": 1.5, "call": 10.0} if way == "hang" else {}
            _configure(governor, tmp_path, port, **limits)
            for name, (event, repo, _) in RUNNERS.items():
                _plant(tmp_path, name, way)
                assert governor.emit(f"{way}-{name}", event, repo, field="100").message == f"[runner] {name} queued"
            assert governor.emit(f"{way}-probe", "probe", "persist-memory-probe").ok
            assert governor.emit(f"during {way}", "nothing.known", "kanban-pmo").ok
            endings = _endings(governor, way)
        called = endings.pop("probe")
        assert (called["type"], called["reason"], called["ok"], len(calls)) == (*of_probe, False, 1), (way, called)
        assert {name: (end["type"], end["reason"], end["ok"]) for name, end in endings.items()} == dict.fromkeys(
            RUNNERS, expected
        )
        if way == "exit_three":
            assert all(end["exit_code"] == 3 and "the reason is three" in end["stderr"] for end in endings.values())
            assert "disk full" in called["stderr"]
    _check_floods(governor)


def _endings(governor: GovernorProcess, way: str) -> dict[str, dict[str, Any]]:
    """How all runs of one way ended, by runner; exactly one end each."""
    found: dict[str, dict[str, Any]] = {}
    for beginning in ("runner.e", "runner.t"):  # two streams without the output's lines
        for event in governor.stream(110.0, event_type_filter=beginning):
            if event.task_id.startswith(f"{way}-"):
                assert event.event_type in TERMINAL and event.field not in found, event
                found[event.field] = {**json.loads(event.payload), "type": event.event_type}
    return found


def _check_floods(governor: GovernorProcess) -> None:
    """Every byte of every flood is in its log; one is told whole, in bounded pieces. Their files go afterwards."""
    logs = governor.root / ".artifacts/logs"
    sizes = {name: max(path.stat().st_size for path in logs.rglob(f"{name}-*.log")) for name in RUNNERS}
    assert all(size >= FLOOD for size in sizes.values()), sizes
    told = 0
    for event in governor.stream(90.0, task_filter="flood-board", event_type_filter="runner.stdout"):
        assert len(event.payload) < 1 << 20
        told += len(json.loads(event.payload)["chunk"])
    assert told == sizes["board"]
    shutil.rmtree(logs)


def test_missing_programs_are_skipped(governor: GovernorProcess, tmp_path: Path) -> None:
    """A cmd or module that is nowhere, or a repository that is not there, is a skipped event that says so."""
    text = (SHIPPED / "runners.yml").read_text()
    text = text.replace("_runner\n", "_nowhere\n").replace("scripts/", "nowhere/")
    here = make_repository(tmp_path / "kanban-pmo")
    governor.configure(
        text, repos_text({"kanban-pmo": here, "ollama-local": here, "persist-memory-probe": tmp_path / "gone"})
    )
    governor.start()
    for name, (event, repo, _) in RUNNERS.items():
        assert governor.emit(f"M-{name}", event, repo).message.startswith(f"[runner] {name} skipped")
        found, payload = governor.run_end(f"M-{name}")
        assert found == "runner.skipped" and "nowhere" in payload["reason"]
    assert "is missing" in governor.emit("M-probe", "probe", "persist-memory-probe").message
    assert governor.run_end("M-probe")[0] == "runner.skipped"
