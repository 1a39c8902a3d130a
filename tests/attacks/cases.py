"""One function per attack; each yields what must not have happened."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from debug_server.worktrees.mount import detach
from tests.attacks.victim import Arena, Attacker, Victim, make_repository, victim, wait_ended
from tests.running import ROOT, carrying, eventually, new_mark

Case = Callable[[Arena], Iterator[str]]
_COMMIT = {"repository": "project", "commit_sha": "HEAD"}

# -- another user of the machine -------------------------------------------------------------------------------------

_HTTP = """
import http.client, json, sys
port, path, body = int(sys.argv[1]), sys.argv[2], sys.argv[3]
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
method = "POST" if body else "GET"
connection.request(method, path, body or None, {"Content-Type": "application/json"} if body else {})
answer = connection.getresponse()
print(answer.status, answer.read(300))
"""

_GRPC = """
import sys, grpc
from debug_server.kanban import kanban_pb2 as pb
port, home = sys.argv[1:]
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
calls = {
    "/kanban.RepoRegistry/ListRepos": pb.ListReposRequest(),
    "/kanban.RepoRegistry/AddRepo": pb.AddRepoRequest(repo=pb.RepoEntry(name="home", local_path=home)),
    "/kanban.FileWrite/Write": pb.WriteRequest(repo_name="home", relative_path=".ssh/authorized_keys", content="x"),
    "/kanban.IssueEvent/Emit": pb.IssueEventRequest(task_id="t", event_type="tick", repo_name="home"),
}
for path, message in calls.items():
    call = channel.unary_unary(path, request_serializer=lambda m: m.SerializeToString())
    try:
        call(message, timeout=20)
        print(path, "OK")
    except grpc.RpcError as error:
        print(path, error.code().name)
"""

_READ = """
import os, sys
for top in sys.argv[1:]:
    try:
        print("listed", top, os.listdir(top))
    except OSError:
        pass
"""


def another_user(arena: Arena) -> Iterator[str]:
    """Without a token, another uid runs nothing, reads nothing and writes nothing."""
    attacker = Attacker.of(arena)
    mark = attacker.home / "smudged"
    repository = _hostile_repository(attacker, mark)
    with _governing(arena, "another-user") as server:
        place = {"project_root": str(repository), "worktree_path": f"{attacker.home}/wt", "git_branch": "b"}
        asked = {"task_id": "t", "run_id": "r", "prompt": "x", "execution_mode": "isolated-worktree"}
        task = json.dumps({**asked, "workspace": {"project_id": 1, **place}})
        for path, body in {
            "/tasks": "",
            "/tasks/submit": task,
            "/tasks/t": "",
            "/tasks/t/cancel": "{}",
            "/v1/models": "",
            "/v1/chat/completions": '{"model": "m", "messages": [{"role": "user", "content": "x"}]}',
            "/metrics": "",
            "/kanban/events": '{"task_id": "t", "event_type": "tick", "repo_name": "r"}',
            "/hooks": "{}",
            "/whoami": "",
            "/sessions": "",
        }.items():
            done = attacker.python(_HTTP, server.port, path, body)
            if done.stdout[:3] not in {"401", "403", "404", "405"}:
                yield f"{path} answered another user with {done.stdout.strip() or done.stderr[-300:]}"
        done = attacker.python(_GRPC, server.grpc_port, server.home)
        for line in done.stdout.splitlines():
            if line.split()[-1] not in {"UNAUTHENTICATED", "PERMISSION_DENIED"}:
                yield f"gRPC answered another user: {line}"
        if done.stdout.count("\n") != 4:
            yield f"the gRPC attack did not run: {done.stderr[-500:]}"
        done = attacker.python(_READ, server.data, *server.data.iterdir())
        if done.stdout:
            yield f"another user can list the data folder: {done.stdout}"
        if (server.home / ".ssh").exists():
            yield "another user wrote into the home of the server's user"
        eventually(partial(_settled, server), 30)
        if mark.exists():
            yield "a program of another user's repository ran"
        yield from _own_user_is_served(arena, server)


def _settled(server: Victim) -> bool:
    """Whether no task that got through is still under way."""
    with server.client() as client:
        tasks = client.get("/tasks").json()["items"]
    return all(task["status"] not in ("queued", "running") for task in tasks)


def _own_user_is_served(arena: Arena, server: Victim) -> Iterator[str]:
    """The control: what is refused to others works for the server's own user."""
    if arena.uid == os.geteuid():
        status = httpx.get(f"{server.base_url}/tasks").status_code
        if status != 200:
            yield f"the server's own user is answered with {status}"


def _hostile_repository(attacker: Attacker, mark: Path) -> Path:
    """A repository whose configuration names a program for each file that is checked out."""
    path = attacker.home / "hostile"
    if not path.exists():
        make_repository(path, os.geteuid(), {"a.txt": "hello\n", ".gitattributes": "* filter=evil\n"})
        program = attacker.home / "evil.sh"
        program.write_text(f"#!/bin/sh\nid > {mark}\nchmod 666 {mark}\ncat\n")
        program.chmod(0o755)
        for key in ("filter.evil.smudge", "filter.evil.clean", "diff.external", "core.fsmonitor", "core.sshCommand"):
            subprocess.run(["git", "-C", str(path), "config", key, str(program)], check=True)
        for entry in [path, program, *path.rglob("*")]:
            os.lchown(entry, attacker.uid, attacker.uid)
    return path


def own_commands(arena: Arena) -> Iterator[str]:
    """A command of the server's, which runs as its user, is nobody without a token."""
    with _governing(arena, "own-commands") as server, server.client() as client:
        for port, path in ((server.port, "/tasks"), (server.port, "/metrics"), (server.port, "/v1/models")):
            argv = [arena.python, "-c", _HTTP, str(port), path, ""]
            command = _run(server, client, argv, wall_seconds=60)
            said = client.get(f"/commands/{command['id']}/log").text.strip()
            if not said.startswith(("401", "403")):
                yield f"{path} answered a command of ours with {said[-200:]}"


# -- what a command leaves behind ------------------------------------------------------------------------------------


def bind_mounts(arena: Arena) -> Iterator[str]:
    """What a command mounts in its folder is not deleted with the folder."""
    precious = arena.root / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep me")
    os.chown(precious, arena.uid, arena.uid)
    mounting = f"mkdir m && mount --bind {precious} m; mkdir t && mount -t tmpfs none t; chattr +i . 2>/dev/null; true"
    template = {"HOST_RUNNER_EXECUTOR": "shell", "HOST_RUNNER_CMD_TEMPLATE": f"{mounting} # {{task_id}}"}
    for backend in ("auto", "pool"):
        settings = f'[workspaces]\nbackend = "{backend}"\n'
        with _configured(arena, f"bind-mounts-{backend}", settings, template) as server:
            with server.client(timeout=60) as client:
                session = _session(client)
                command = _submit(client, session, ["sh", "-c", mounting])
                wait_ended(client, command["id"], 60)
                if (answer := client.delete(f"/sessions/{session}")).status_code != 200:
                    yield f"{backend}: the session cannot be closed: {answer.text}"
                if client.get(f"/sessions/{session}").json()["status"] == "running":
                    yield f"{backend}: the session stays open"
                asked = {"task_id": "t", "run_id": "r", "prompt": "x"}
                if arena.uid == os.geteuid():
                    httpx.post(f"{server.base_url}/tasks/submit", json=asked).raise_for_status()
                    httpx.get(f"{server.base_url}/tasks/t/wait?timeout=60", timeout=70).raise_for_status()
                again = _session(client)
                ended = wait_ended(client, _submit(client, again, ["ls"])["id"], 60)
                if ended["exit_code"] != 0:
                    yield f"{backend}: a later session does not work: {ended}"
                client.delete(f"/sessions/{again}").raise_for_status()
            server.stop()
        if not (precious / "file").exists():
            yield f"{backend}: cleaning up deleted what a command had mounted"


def leaving_the_group(arena: Arena) -> Iterator[str]:
    """A command that moves a child out of its control group leaves nothing running."""
    escape = (
        "for f in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/*/tasks; do"
        " echo $$ > $f; done 2>/dev/null; sleep 600; :"
    )
    with victim(arena, "leaving-the-group") as server, server.client() as client:
        for how in ("exit", "timeout", "cancel"):
            mark = new_mark(how)
            argv = ["sh", "-c", f"setsid sh -c '{escape}' {mark} & sleep 0.5; {_then(how)}"]
            command = _start_run(client, argv, wall_seconds=2 if how == "timeout" else 60)
            if how == "cancel":
                _await_running(client, [command])
                time.sleep(1.0)  # until the escape has had its chance
                client.post(f"/commands/{command}/cancel").raise_for_status()
            wait_ended(client, command, 60)
            with contextlib.suppress(AssertionError):
                eventually(partial(_gone, mark), 10)
            if left := carrying(mark):
                yield f"after {how}, processes {left} go on"


def _then(how: str) -> str:
    return "exit 0" if how == "exit" else "sleep 600"


def stopped_keepers(arena: Arena) -> Iterator[str]:
    """A command that stops its keeper is ended all the same, and others still run."""
    stop = "kill -STOP $PPID 2>/dev/null; sleep 600"
    with victim(arena, "stopped-keepers") as server, server.client() as client:
        timed = [_start_run(client, ["sh", "-c", stop], wall_seconds=2) for _ in range(8)]
        for number in timed:
            ended = wait_ended(client, number, 120)
            if ended["exit_reason"] not in ("timed_out", "lost"):
                yield f"command {number} with a stopped keeper ended as {ended['exit_reason']}"
        ninth = _run(server, client, ["true"], wall_seconds=60)
        if ninth["exit_code"] != 0:
            yield f"after eight stopped keepers a command ends as {ninth}"
        number = _start_run(client, ["sh", "-c", stop])
        _await_running(client, [number])
        client.post(f"/commands/{number}/cancel", timeout=60)
        ended = wait_ended(client, number, 120)
        if ended["exit_reason"] not in ("cancelled", "lost"):
            yield f"a cancelled command with a stopped keeper ended as {ended['exit_reason']}"


# -- a store or a disk that fails ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(database: Path) -> Iterator[None]:
    """Nobody else can write to the database."""
    connection = sqlite3.connect(database, timeout=60, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def store_away(arena: Arena) -> Iterator[str]:
    """Commands that end, or start, while the store is locked have their true end afterwards, without a restart."""
    seconds = 15 if arena.short else 75
    with victim(arena, "store-away") as server, server.client(timeout=20) as client:
        ending = [_start_run(client, ["sh", "-c", f"sleep 3; exit {code}"]) for code in range(3)]
        _await_running(client, ending)
        starting = _start_run(client, ["sh", "-c", f"echo began; sleep {seconds + 5}; echo done"])
        with _locked(server.data / "data" / "metadata.db"):
            time.sleep(seconds)
        for code, number in enumerate(ending):
            ended = wait_ended(client, number, 60)
            if ended["exit_code"] != code:
                yield f"command {number} exited {code} while the store was away and is {ended}"
        ended = wait_ended(client, starting, 60)
        if ended["exit_code"] != 0 or "done" not in client.get(f"/commands/{starting}/log").text:
            yield f"a command that was starting when the store went away ended as {ended}"
        if _run(server, client, ["true"])["exit_code"] != 0:
            yield "no command runs after the store came back"


def _free(folder: Path) -> int:
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


def full_disk(arena: Arena) -> Iterator[str]:
    """A command that fills the disk ends, callers are answered meanwhile, and the next command works."""
    if os.geteuid() != 0:
        return
    folder = arena.root / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "none", str(folder)], check=True)
    try:
        with victim(arena, "full-disk", folder=folder) as server, server.client() as client:
            session = _session(client)
            filling = ["sh", "-c", "head -c 200m /dev/zero > big || true; head -c 1m /dev/zero > more; sleep 5; exit 7"]
            number = _submit(client, session, filling)["id"]
            deadline = time.monotonic() + (10 if arena.short else 75)
            while time.monotonic() < deadline:
                if (answer := client.get("/whoami")).status_code != 200:
                    yield f"while the disk is full /whoami answers {answer.status_code}: {answer.text[:200]}"
                    break
                time.sleep(0.5)
            ended = wait_ended(client, number, 90)
            if ended["exit_code"] != 7 and ended["exit_reason"] != "limit_exceeded":
                yield f"the command that filled the disk ended as {ended}"
            client.delete(f"/sessions/{session}").raise_for_status()
            eventually(lambda: _free(folder) > 16 << 20, what="the session's files to be removed")
            again = _session(client)
            ended = wait_ended(client, _submit(client, again, ["true"])["id"], 60)
            if ended["exit_code"] != 0:
                yield f"after the disk was full a command ends as {ended}"
            client.delete(f"/sessions/{again}").raise_for_status()
    finally:
        detach(folder)


# -- crashes and crowds ----------------------------------------------------------------------------------------------


def leaked_leases(arena: Arena) -> Iterator[str]:
    """After many crashes every workspace can be leased again at once."""
    kills = 5 if arena.short else 30
    with victim(arena, "leaked-leases") as server:
        dice = random.Random(1)
        for _ in range(kills):
            with server.client(timeout=10) as client:
                threads = [threading.Thread(target=_try_run, args=(client,), daemon=True) for _ in range(4)]
                for thread in threads:
                    thread.start()
                time.sleep(dice.uniform(0.0, 0.3))
                server.kill()
                for thread in threads:
                    thread.join(30)
            server.start()
        with server.client(timeout=60) as client:
            eventually(lambda: not _unfinished(client), 60, "the ends of all commands")
            opened: list[int] = []
            for _ in range(16):
                answer = client.post("/sessions", json=_COMMIT)
                if answer.status_code != 201:
                    yield f"after {kills} kills session {len(opened) + 1} of 16 is refused: {answer.text[:300]}"
                    break
                opened.append(answer.json()["id"])
            for session in opened:
                client.delete(f"/sessions/{session}").raise_for_status()


def _try_run(client: httpx.Client) -> None:
    with contextlib.suppress(httpx.HTTPError):
        client.post("/runs?wait=5", json={**_COMMIT, "argv": ["sleep", "0.05"]})


def _unfinished(client: httpx.Client) -> list[int]:
    answer = client.get("/sessions?limit=1000").json()["items"]
    return [session["id"] for session in answer if session["status"] in ("pending", "running")]


def many_connections(arena: Arena) -> Iterator[str]:
    """Silent and half-sent requests of strangers do not stop the service, and are not complained of at length."""
    count = 400
    with victim(arena, "many-connections", descriptors=256) as server:
        before = server.log.stat().st_size
        sockets: list[socket.socket] = []
        halves = [
            b"",
            b"GET /whoami HTTP/1.1\r\nHost: x\r\n",
            b"POST /tasks/submit HTTP/1.1\r\nContent-Length: 9\r\n\r\nx",
        ]
        try:
            for number in range(count):
                with contextlib.suppress(OSError):
                    found = socket.create_connection(("127.0.0.1", server.port), timeout=1)
                    sockets.append(found)
                    found.sendall(halves[number % len(halves)])
            deadline = time.monotonic() + (5 if arena.short else 30)
            answered = refused = 0
            while time.monotonic() < deadline:
                try:
                    with server.client(timeout=10) as client:
                        answered += client.get("/whoami").status_code == 200
                except httpx.HTTPError:
                    refused += 1
                time.sleep(0.1)
            if refused > answered:
                yield f"under {count} silent connections {refused} of {answered + refused} requests were not served"
            with server.client() as client:
                if _run(server, client, ["true"], wall_seconds=60)["exit_code"] != 0:
                    yield "no command runs under many connections"
            if (grown := server.log.stat().st_size - before) > 1 << 20:
                yield f"the log grew by {grown} bytes"
        finally:
            for found in sockets:
                found.close()


def exactly_once(arena: Arena) -> Iterator[str]:
    """Clients that repeat a request under its key until it is answered get one command, which starts once."""
    clients, kills = (5, 3) if arena.short else (20, 30)
    journal = arena.root / "journal"
    journal.mkdir()
    os.chown(journal, arena.uid, arena.uid)
    with victim(arena, "exactly-once") as server:
        ended = threading.Event()
        crowd = [_Repeater(server, journal, name, ended) for name in range(clients)]
        for one in crowd:
            one.start()
        dice = random.Random(2)
        for _ in range(kills):
            time.sleep(dice.uniform(0.3, 1.5))
            server.kill()
            server.start()
        time.sleep(1.0)
        ended.set()
        for one in crowd:
            one.join(120)
            if one.is_alive():
                yield f"client {one.name} is not answered"
        asked = {key: numbers for one in crowd for key, numbers in one.numbers.items()}
        with server.client() as client:
            for key, numbers in asked.items():
                if len(numbers) != 1:
                    yield f"key {key} was answered with the commands {sorted(numbers)}"
                end = wait_ended(client, min(numbers), 120)
                starts = (journal / key).read_text().count("\n") if (journal / key).exists() else 0
                if (end["exit_reason"], starts) != ("exited", 1):
                    yield f"command {end['id']} of key {key} ended as {end['exit_reason']} and started {starts} times"
            ends = _ends(client)
        if again := {number: count for number, count in ends.items() if count != 1}:
            yield f"commands with more than one end: {again}"
        arena.say(f"exactly once: {len(asked)} commands, {clients} clients, {kills} kills")


class _Repeater(threading.Thread):
    """A client that submits one command after the other, each under a key, until it is answered."""

    def __init__(self, server: Victim, journal: Path, number: int, ended: threading.Event) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._server, self._journal, self._ended = server, journal, ended
        self.numbers: dict[str, set[int]] = {}

    def run(self) -> None:
        count = 0
        while not self._ended.is_set():
            key = f"{self.name}-{count}"
            self.numbers[key] = {self._submit(key), self._submit(key)}
            count += 1

    def _submit(self, key: str) -> int:
        body = {**_COMMIT, "argv": ["sh", "-c", f"echo x >> {self._journal}/{key}; sleep 0.2"]}
        while True:
            with contextlib.suppress(httpx.HTTPError), self._server.client(timeout=10) as client:
                answer = client.post("/runs", json=body, headers={"Idempotency-Key": key})
                if answer.is_success:
                    return _number(answer.json())
                if answer.status_code not in (429, 502, 503):
                    raise AssertionError(f"{key}: {answer.status_code} {answer.text}")
            time.sleep(0.05)


def _ends(client: httpx.Client) -> Counter[int]:
    ends: Counter[int] = Counter()
    after = 0
    while events := client.get(f"/events?after={after}&limit=1000").json()["items"]:
        after = events[-1]["seq"]
        ends.update(event["command_id"] for event in events if event["kind"] == "command.finished")
    return ends


# -- requests --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _governing(arena: Arena, name: str) -> Iterator[Victim]:
    """A server with every part: tasks, events and runners, and the gateway over a worker that never gets ready."""
    variables = {"PROXY_USE_APP_SERVER": "true", "PROXY_ENABLE_METRICS": "true", "CODEX_BIN": "/bin/cat"}
    config = {file.name: file.read_text() for file in (ROOT / "config").glob("*.yml")}
    with _configured(arena, name, "", variables, config) as server:
        yield server


@contextlib.contextmanager
def _configured(
    arena: Arena, name: str, settings: str, variables: dict[str, str], config: dict[str, str] | None = None
) -> Iterator[Victim]:
    folder = arena.root / name
    (folder / "config").mkdir(parents=True)
    for file, text in {"runner.toml": settings, **(config or {})}.items():
        (folder / "config" / file).write_text(text)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, arena.uid, arena.uid)
    with victim(arena, name, variables=variables) as found:
        yield found


def _session(client: httpx.Client) -> int:
    answer = client.post("/sessions", json=_COMMIT)
    answer.raise_for_status()
    number: int = answer.json()["id"]
    return number


def _submit(client: httpx.Client, session: int, argv: list[str]) -> dict[str, Any]:
    answer = client.post(f"/sessions/{session}/commands", json={"argv": argv})
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def _start_run(client: httpx.Client, argv: list[str], **limits: float) -> int:
    answer = client.post("/runs", json={"argv": argv, "limits": limits, **_COMMIT})
    answer.raise_for_status()
    return _number(answer.json())


def _number(run: dict[str, Any]) -> int:
    number: int = run["command"]["id"] if "command" in run else run["id"]
    return number


def _run(server: Victim, client: httpx.Client, argv: list[str], **limits: float) -> dict[str, Any]:
    return wait_ended(client, _start_run(client, argv, **limits), 90)


def _await_running(client: httpx.Client, numbers: list[int]) -> None:
    for number in numbers:
        eventually(partial(_began, client, number))


def _began(client: httpx.Client, number: int) -> bool:
    return bool(client.get(f"/commands/{number}").json()["status"] != "pending")


def _gone(mark: str) -> bool:
    return not carrying(mark)


CASES: dict[str, Case] = {
    "another-user": another_user,
    "own-commands": own_commands,
    "bind-mounts": bind_mounts,
    "leaving-the-group": leaving_the_group,
    "stopped-keepers": stopped_keepers,
    "store-away": store_away,
    "full-disk": full_disk,
    "leaked-leases": leaked_leases,
    "many-connections": many_connections,
    "exactly-once": exactly_once,
}


def clear(folder: Path) -> None:
    """Remove what a case left, also files that cannot be changed."""
    subprocess.run(["chattr", "-R", "-i", str(folder)], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)
