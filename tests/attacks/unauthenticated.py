"""Attacks by those who have no token: another user of the machine, and the server's own commands."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx

from tests.attacks.requests import (
    governing,
    run,
)
from tests.attacks.target import Attacker, AttackSetup, Target
from tests.other_users import owned_repository
from tests.running import eventually

_HTTP = """
import http.client, json, sys
port, path, body = int(sys.argv[1]), sys.argv[2], sys.argv[3]
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=50)
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
        call(message, timeout=50)
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


def another_user(setup: AttackSetup) -> Iterator[str]:
    """Without a token, another uid runs nothing, reads nothing and writes nothing."""
    attacker = Attacker.of(setup)
    mark = attacker.home / "written"
    repository = _hostile_repository(attacker, mark)
    with governing(setup, "another-user") as server:
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
        eventually(partial(_settled, server))
        if mark.exists():
            yield "a program of another user's repository ran"
        yield from _own_user_is_served(setup, server)


def _settled(server: Target) -> bool:
    """Whether no task that got through is still under way."""
    with server.client() as client:
        tasks = client.get("/tasks").json()["items"]
    return all(task["status"] not in ("queued", "running") for task in tasks)


def _own_user_is_served(setup: AttackSetup, server: Target) -> Iterator[str]:
    """The control: what is refused to others works for the server's own user."""
    if setup.uid == os.geteuid():
        status = httpx.get(f"{server.base_url}/tasks").status_code
        if status != 200:
            yield f"the server's own user is answered with {status}"


def _hostile_repository(attacker: Attacker, mark: Path) -> Path:
    """A repository whose configuration names a program for each file that is checked out."""
    path = attacker.home / "hostile"
    if not path.exists():
        owned_repository(path, os.geteuid(), {"a.txt": "hello\n", ".gitattributes": "* filter=evil\n"})
        program = attacker.home / "evil.sh"
        program.write_text(f"#!/bin/sh\nid > {mark}\nchmod 666 {mark}\ncat\n")
        program.chmod(0o755)
        for key in ("filter.evil.smudge", "filter.evil.clean", "diff.external", "core.fsmonitor", "core.sshCommand"):
            subprocess.run(["git", "-C", str(path), "config", key, str(program)], check=True)
        for entry in [path, program, *path.rglob("*")]:
            os.lchown(entry, attacker.uid, attacker.uid)
    return path


def own_commands(setup: AttackSetup) -> Iterator[str]:
    """A command of the server's, which runs as its user, is nobody without a token."""
    with governing(setup, "own-commands") as server, server.client() as client:
        for port, path in ((server.port, "/tasks"), (server.port, "/metrics"), (server.port, "/v1/models")):
            argv = [setup.python, "-c", _HTTP, str(port), path, ""]
            command = run(server, client, argv, wall_seconds=60)
            said = client.get(f"/commands/{command['id']}/log").text.strip()
            if not said.startswith(("401", "403")):
                yield f"{path} answered a command of ours with {said[-200:]}"
