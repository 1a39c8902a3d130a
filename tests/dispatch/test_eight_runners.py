"""All eight runners through Emit, each with its effect; then each broken in every way, and the server lives on."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from debug_server.kanban import kanban_pb2 as pb
from debug_server.kanban import kanban_pb2_grpc
from tests.dispatch.governing import SHIPPED, Governor, make_repository, output, probe, repos_text

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
    "flood": "yes $(printf '%0999d' 0) | head -c 100000000; echo; echo the last line",
}


def test_all_eight_do_their_work(governor: Governor, tmp_path: Path) -> None:
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
        said = {name: governor.told(task_filter=f"E-{name}") for name in (*RUNNERS, "probe")}
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


@pytest.fixture
def breakable(governor: Governor, tmp_path: Path) -> Governor:
    """The shipped runners with short timeouts in repositories whose own programs come first."""
    for repo in ("kanban-pmo", "ollama-local", "persist-memory-probe"):
        make_repository(tmp_path / repo)
    text = (SHIPPED / "runners.yml").read_text().replace("timeout: 600", "").replace("timeout: 300", "")
    text = text.replace("    priority:", "    timeout: 1.5\n    priority:")
    governor.configure(
        text,
        repos_text(
            {name: tmp_path / name for _, name, _ in RUNNERS.values()}
            | {"persist-memory-probe": tmp_path / "persist-memory-probe"}
        ),
    )
    return governor.start()


def _plant(root: Path, runner: str, way: str) -> None:
    _, repo, program = RUNNERS[runner]
    target = root / repo / program
    target.parent.mkdir(exist_ok=True)
    target.write_text(SHELL[way] if program.endswith(".sh") else (PROGRAMS / f"{way}.py").read_text())


@pytest.mark.parametrize(
    ("way", "kind", "reason"),
    [
        ("exit_three", "runner.exited", "nonzero_exit"),
        ("hang", "runner.timeout", "timed_out"),
        ("kill_itself", "runner.exited", "signaled"),
    ],
)
def test_each_runner_broken(breakable: Governor, tmp_path: Path, way: str, kind: str, reason: str) -> None:
    """Exit 3, hanging and SIGKILL give the right event with ok=false for each runner; the next Emit is answered."""
    for name, (event, repo, _) in RUNNERS.items():
        _plant(tmp_path, name, way)
        assert breakable.emit(f"{way}-{name}", event, repo, field="1").ok
    for name in RUNNERS:
        found, payload = breakable.ending(f"{way}-{name}")
        assert (found, payload["reason"], payload["ok"]) == (kind, reason, False), (name, payload)
        if way == "exit_three":
            assert payload["exit_code"] == 3 and "the reason is three" in payload["stderr"]
    assert breakable.emit("after", "nothing.known", "kanban-pmo").ok


@pytest.mark.parametrize("name", ["board", "verify"])
def test_a_hundred_megabytes_of_output(breakable: Governor, tmp_path: Path, name: str) -> None:
    """A python and a bash runner write 100 MB: all of it is told, in bounded pieces, and the run ends well."""
    _plant(tmp_path, name, "flood")
    event, repo, _ = RUNNERS[name]
    (breakable.root / "config/runners.yml").write_text(
        (breakable.root / "config/runners.yml").read_text().replace("timeout: 1.5", "timeout: 60")
    )
    assert breakable.emit(f"flood-{name}", event, repo).ok
    size, last = 0, None
    for item in breakable.stream(90.0, task_filter=f"flood-{name}"):
        if item.event_type == "runner.stdout":
            assert len(item.payload) < 1 << 20
            size += len(json.loads(item.payload)["chunk"])
        last = item
    assert size >= 100_000_000
    assert last is not None and last.event_type == "runner.exited" and json.loads(last.payload)["ok"]
    assert breakable.emit("after", "nothing.known", "kanban-pmo").ok


def test_missing_programs_are_skipped(governor: Governor, tmp_path: Path) -> None:
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
        found, payload = governor.ending(f"M-{name}")
        assert found == "runner.skipped" and "nowhere" in payload["reason"]
    assert "is missing" in governor.emit("M-probe", "probe", "persist-memory-probe").message
    assert governor.ending("M-probe")[0] == "runner.skipped"


class _Strange(kanban_pb2_grpc.ProbeSyncServicer):
    def __init__(self, behaviour: str, calls: list[str]) -> None:
        self._behaviour, self._calls = behaviour, calls

    def SyncRepo(self, request: Any, context: Any) -> Any:
        self._calls.append(request.repo_name)
        if self._behaviour == "never":
            context.add_callback(lambda: None)
            threading.Event().wait(4)
        if self._behaviour == "refuses":
            return pb.SyncRepoResponse(ok=False, error="disk full")
        return b"\xff\xff garbage" if self._behaviour == "garbage" else pb.SyncRepoResponse(ok=True)


@contextmanager
def _strange(behaviour: str, calls: list[str]) -> Iterator[int]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    method = grpc.unary_unary_rpc_method_handler(
        _Strange(behaviour, calls).SyncRepo,
        request_deserializer=pb.SyncRepoRequest.FromString,
        response_serializer=lambda value: value if isinstance(value, bytes) else value.SerializeToString(),
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("kanban.ProbeSync", {"SyncRepo": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


@contextmanager
def _not_grpc(calls: list[str]) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        done.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.mark.parametrize(
    ("behaviour", "kind", "calls"),
    [
        ("never", "runner.timeout", 1),
        ("garbage", "runner.error", 1),
        ("refuses", "runner.exited", 1),
        ("not grpc", "runner.error", 0),
        ("gone", "runner.error", 0),
    ],
)
def test_a_probe_that_misbehaves(governor: Governor, tmp_path: Path, behaviour: str, kind: str, calls: int) -> None:
    """A call that was sent is never sent again; whatever the probe does becomes the right event."""
    path = make_repository(tmp_path / "repo")
    text = (
        "runners:\n  probe:\n    executor: grpc\n    target: persist-memory-probe:50052\n    rpc: ProbeSync.SyncRepo\n"
    )
    governor.configure(f"{text}    skills: [probe.sync]\n    repos: all\n    timeout: 2\n", repos_text({"repo": path}))
    received: list[str] = []
    if behaviour == "gone":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        chosen = None
    else:
        chosen = _not_grpc(received) if behaviour == "not grpc" else _strange(behaviour, received)
        port = chosen.__enter__()
    try:
        governor.environ = {"PROBE_HOST": "127.0.0.1", "PROBE_GRPC_PORT": str(port)}
        governor.start()
        assert governor.emit("P", "probe", "repo").ok
        found, payload = governor.ending("P")
        assert (found, payload["ok"], len(received)) == (kind, False, calls), payload
        assert governor.emit("after", "nothing.known", "repo").ok
    finally:
        if chosen is not None:
            chosen.__exit__(None, None, None)
