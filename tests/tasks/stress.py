"""Stress tests of tasks: cancels at random moments, servers killed under load; each returns what went wrong."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import httpx

from tests.home import plain_git
from tests.running import ROOT, carrying, eventually, lasting_port
from tests.tasks.task_server import Receiver, TaskServer

STUBBORN = Path(__file__).parent / "programs" / "stubborn.sh"


@dataclass(slots=True, kw_only=True)
class Findings:
    """The results of a stress test."""

    violations: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def expect(self, holds: bool, what: str) -> None:
        """Record a violation unless ``holds``."""
        if not holds:
            self.violations.append(what)


# -- cancel at random moments ----------------------------------------------------------------------------------


def cancel_at_random(root: Path, rounds: int, seed: int, say: Callable[[str], None] = lambda text: None) -> Findings:
    """Cancel tasks of each mode in each state: canceled, tree empty, worktree and locks free."""
    findings = Findings()
    mark = f"stubborn-{seed}-{os.getpid()}"
    template = f"exec {STUBBORN} {mark}-{{task_id}}"
    server = TaskServer(root / "server", kill_grace=0.5, max_concurrency=2, executor="shell", cmd_template=template)
    cancels = RandomCancels(
        server=server,
        findings=findings,
        dice=random.Random(seed),
        root=root,
        project=_project(root / "project"),
        mark=mark,
    )
    try:
        for number in range(rounds):
            cancels.cancel(number)
            if number % 50 == 49:
                say(f"{number + 1} cancels, slowest {max(cancels.seconds):.2f} s")
        left = server.local.store.commands._all("SELECT COUNT(*) FROM session_claims")[0][0]
        findings.expect(left == 0, f"{left} claims are left")
        findings.expect(not carrying(mark), "processes are left")
    finally:
        server.close()
    seconds = cancels.seconds
    findings.facts = {
        "rounds": rounds,
        "states": dict(cancels.states),
        "seconds_max": round(max(seconds), 3),
        "seconds_p50": round(sorted(seconds)[len(seconds) // 2], 3),
        "over_2_s": sum(value > 2 for value in seconds),
    }
    return findings


@dataclass(slots=True, kw_only=True)
class RandomCancels:
    """Cancels tasks in random modes at random moments."""

    server: TaskServer
    findings: Findings
    dice: random.Random
    root: Path
    project: Path
    mark: str
    seconds: list[float] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)

    def cancel(self, number: int) -> None:
        """Submit a task in a random mode and cancel it at a random moment."""
        task_id = f"t{number}"
        mode = self.dice.choice(["no-workspace", "shared-workspace", "isolated-worktree", "queued"])
        worktree = self.root / f"wt{number}"
        # Both slots of the engine are in use, so the task stays queued.
        holders = [f"h{number}-{index}" for index in range(2 if mode == "queued" else 0)]
        for holder in holders:
            self.server.submitted(holder)
            self.server.running(holder)
        self.server.submitted(task_id, **self._asked(mode, worktree, number))
        if mode != "queued":
            longest = self.dice.choice([0.01, 0.1, 0.6])
            if longest > 0.5:  # certainly running, also on a busy machine
                self.server.running(task_id)
            time.sleep(self.dice.random() * longest)
        before = self.server.get(task_id)["status"]
        began = time.monotonic()
        found = self.server.cancel(task_id)
        self.seconds.append(time.monotonic() - began)
        self.states[before] += 1
        about = f"{task_id} ({mode}, {before})"
        expect = self.findings.expect
        expect(found["status"] == "canceled", f"{about} ended as {found['status']}: {found}")
        expect(mode != "queued" or found["started_at"] is None, f"{about} was started")
        expect(not carrying(f"{self.mark}-{task_id}"), f"{about} has left processes")
        expect(not worktree.exists(), f"{about} has left its worktree")
        for holder in holders:
            self.server.cancel(holder)

    def _asked(self, mode: str, worktree: Path, number: int) -> dict[str, Any]:
        place = {"project_id": 1, "project_root": str(self.project), "lock_paths": [str(self.project)]}
        if mode == "isolated-worktree":
            place |= {"worktree_path": str(worktree), "git_branch": f"agent/{number}"}
        return {} if mode in ("no-workspace", "queued") else {"execution_mode": mode, "workspace": place}


def _project(root: Path) -> Path:
    root.mkdir(parents=True)
    for command in (
        ["init", "-q", "-b", "main"],
        ["-c", "user.name=u", "-c", "user.email=u@localhost", "commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", "-C", str(root), *command], env=plain_git(), check=True)
    return root


# -- servers killed under load ---------------------------------------------------------------------------------


class ServerProcess:
    """``debug-server tasks serve`` as a process, on the same port after a restart."""

    def __init__(self, root: Path, *, template: str, in_flight: int) -> None:
        self.port = lasting_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._root = root
        self._environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "HOME": str(root),  # a login shell reads nobody's profile
            "DEBUG_SERVER_DB_URL": f"sqlite:///{root}/data/metadata.db",
            "DEBUG_SERVER_PATHS_ARTIFACTS": str(root / "artifacts"),
            "DEBUG_SERVER_RUNNER_MAX_CONCURRENCY": str(in_flight),
            "HOST_RUNNER_EXECUTOR": "shell",
            "HOST_RUNNER_CMD_TEMPLATE": template,
            "HOST_RUNNER_CALLBACK_ALLOW": "127.0.0.1",
        }
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        argv = [
            sys.executable,
            "-m",
            "debug_server",
            "tasks",
            "serve",
            "--port",
            str(self.port),
            "--log-level",
            "error",
        ]
        process = subprocess.Popen(argv, cwd=self._root, env=self._environ, stdout=subprocess.DEVNULL)
        eventually(self._answers, what="a server that answers")
        return process

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """Kill the server and start the next one."""
        self.replace(signal.SIGKILL)

    def replace(self, number: int) -> None:
        """End the server with a signal and start the next one."""
        self.process.send_signal(number)
        self.process.wait(60)
        self.process = self._start()

    def close(self) -> None:
        """Stop the server."""
        self.process.terminate()
        self.process.wait(60)


def kill_under_load(
    root: Path, *, tasks: int, kills: int, in_flight: int = 16, say: Callable[[str], None] = lambda text: None
) -> Findings:
    """Submit, kill -9 and restart meanwhile: none lost or run twice, all terminal, callbacks complete and in order."""
    root.mkdir(parents=True, exist_ok=True)
    findings, receiver, ran = Findings(), Receiver(), root / "ran"
    began = time.monotonic()
    server = ServerProcess(root, template=f"echo {{task_id}} >> {ran}; echo {{prompt}}", in_flight=in_flight)
    try:
        waiting: SimpleQueue[int] = SimpleQueue()
        for number in range(tasks):
            waiting.put(number)
        clients = [threading.Thread(target=_submit_all, args=(server, receiver, waiting)) for _ in range(in_flight)]
        for client in clients:
            client.start()
        for part in range(1, kills + 1):
            wanted = part * tasks // (kills + 1)
            eventually(partial(_has_run, ran, wanted), 900, f"{wanted} tasks run")
            say(f"{_count(ran)} of {tasks} have run: kill -9 {part}")
            server.kill()
        for client in clients:
            client.join(600)
        _check_tasks(server, findings, tasks, ran)
        say("all tasks have ended")
        _check_callbacks(receiver, findings, tasks)
    finally:
        server.close()
        receiver.close()
    findings.facts = {"tasks": tasks, "kills": kills, "seconds": round(time.monotonic() - began, 1)}
    findings.facts["callbacks"] = len(receiver.seen)
    return findings


def _submit_all(server: ServerProcess, receiver: Receiver, waiting: SimpleQueue[int]) -> None:
    """Submit until none is left; while the server is down, retry with the same key."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        while True:
            try:
                number = waiting.get_nowait()
            except Empty:
                return
            body = {"task_id": f"t{number}", "run_id": "r", "prompt": f"p {number}"}
            body["status_callback_url"] = f"{receiver.url}/{number}"
            while not _submitted(client, body, f"key-{number}"):
                time.sleep(0.05)


def _submitted(client: httpx.Client, body: dict[str, Any], key: str) -> bool:
    try:
        answer = client.post("/tasks/submit", json=body, headers={"Idempotency-Key": key})
    except httpx.TransportError:
        return False
    return answer.status_code == 200


def _has_run(ran: Path, wanted: int) -> bool:
    return _count(ran) >= wanted


def _count(ran: Path) -> int:
    return ran.read_bytes().count(b"\n") if ran.exists() else 0


def _check_tasks(server: ServerProcess, findings: Findings, tasks: int, ran: Path) -> None:
    def ended() -> bool:
        listed = _listed(server)
        return len(listed) == tasks and all(item["status"] not in ("queued", "running") for item in listed)

    eventually(ended, 600, "the end of every task")
    statuses = Counter(item["status"] for item in _listed(server))
    findings.expect(statuses == {"success": tasks}, f"statuses {dict(statuses)}")
    runs = Counter(ran.read_text().split())
    findings.expect(len(runs) == tasks, f"{tasks - len(runs)} tasks never ran")
    twice = [name for name, count in runs.items() if count > 1]
    findings.expect(not twice, f"run twice: {twice[:10]}")


def _listed(server: ServerProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: int | None = 0
    with httpx.Client(base_url=server.url, timeout=60) as client:
        while after is not None:
            page = client.get("/tasks", params={"after": after, "limit": 1000}).raise_for_status().json()
            found += page["items"]
            after = page["next_after"]
    return found


def _check_callbacks(receiver: Receiver, findings: Findings, tasks: int) -> None:
    def told() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path, _, body in list(receiver.seen):
            found.setdefault(path, []).append(body["status"])
        return found

    eventually(lambda: sum("success" in said for said in told().values()) == tasks, 300, "the last callback of each")
    for path, said in told().items():
        once = [status for at, status in enumerate(said) if at == 0 or said[at - 1] != status]
        findings.expect(once == ["running", "success"], f"callbacks of {path}: {said}")
