"""Without a token the server knows nobody but its own user: no other user of the machine, and none of its commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from debug_server.store import open_store
from tests.repositories import make_repository
from tests.running import ROOT, eventually
from tests.servers import ServerProcess, serving

NOBODY = 65534
CALLER = Path(__file__).parent / "programs/caller.py"
REFUSED = ["UNAUTHENTICATED"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def called(uid: int, *calls: list[Any]) -> list[str]:
    """What came of calls by a process of that user."""
    done = subprocess.run(
        [sys.executable, str(CALLER), str(uid)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with every part, as it comes; tasks run their prompt as Python."""
    root = tmp_path_factory.mktemp("server")
    (root / "prompt.py").write_text("import sys; exec(sys.argv[1])\n")
    for name in ("config", "home"):
        (root / name).mkdir()
    for name in ("runners.yml", "repos.yml"):
        shutil.copy(ROOT / "config" / name, root / "config" / name)
    variables = {
        "PROXY_USE_APP_SERVER": "false",
        "PROXY_PROTECT_MODELS": "true",
        "HOST_RUNNER_EXECUTOR": "shell",
        "HOST_RUNNER_CMD_TEMPLATE": f"{sys.executable} {root / 'prompt.py'} {{prompt}}",
        "HOST_RUNNER_CALLBACK_ALLOW": "localhost",
        "DEBUG_SERVER_HOME": str(root / "client"),
        "HOME": str(root / "home"),  # a login shell reads nobody's profile
    }
    with serving(root, variables=variables, grpc=True, log_level="INFO") as running:
        yield running


def attacks(process: ServerProcess, host: str = "127.0.0.1", target: str | None = None) -> list[list[Any]]:
    """A call to each part that needs no token from the server's own user."""
    target = target or f"{host}:{process.grpc_port}"
    return [
        ["http", host, process.port, "GET", "/tasks"],
        ["http", host, process.port, "GET", "/kanban/events?follow=false"],
        ["http", host, process.port, "GET", "/metrics"],
        ["http", host, process.port, "GET", "/v1/models"],
        ["grpc", target, "RepoRegistry", "ListRepos", {}],
    ]


def statuses(found: list[str]) -> list[str]:
    """Without bodies."""
    return [item.split(" ")[0] for item in found]


def test_the_server_s_own_user_needs_no_token(process: ServerProcess) -> None:
    """A process of the same user is served by every part, over IPv4, over IPv4 written as IPv6 and by the socket."""
    known = ["200", "200", "200", "200", "OK"]
    assert statuses(called(os.getuid(), *attacks(process))) == known
    assert (
        statuses(called(os.getuid(), *attacks(process, "::ffff:127.0.0.1", f"127.0.0.1:{process.grpc_port}"))) == known
    )
    own = process.root / ".artifacts/data/server.sock"
    assert own.stat().st_mode & 0o777 == 0o600
    with ShortPath(own) as path, httpx.Client(transport=httpx.HTTPTransport(uds=path), timeout=100) as http:
        assert http.get("http://localhost/tasks").status_code == 200
        assert http.get("http://evil.example/tasks").status_code == 401
        assert http.get("http://localhost/tasks", headers={"X-Forwarded-For": "192.0.2.1"}).status_code == 401
        assert http.get("http://localhost/whoami").status_code == 401  # the API always needs a token


class ShortPath:
    """A unix socket under a name that fits into an address."""

    def __init__(self, path: Path) -> None:
        self._folder = os.open(path.parent, os.O_PATH)
        self._name = path.name

    def __enter__(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._folder}/{self._name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)


@needs_root
def test_another_user_needs_a_token(process: ServerProcess) -> None:
    """401 says what to do; a token does it; health and readiness are open."""
    strange = ["401", "401", "403", "401", "UNAUTHENTICATED"]
    found = called(NOBODY, *attacks(process), ["unix", str(process.root / ".artifacts/data/server.sock")])
    assert statuses(found[:5]) == strange
    assert "debug-server configure --base-url URL --token -" in found[0]
    assert found[5] in ("PermissionError", "OSError")  # the second where the path is too long for an address
    mapped = attacks(process, "::ffff:127.0.0.1", f"127.0.0.1:{process.grpc_port}")
    assert statuses(called(NOBODY, *mapped)) == strange
    probes = ("/health", "/livez", "/healthz", "/readyz")
    assert (
        statuses(called(NOBODY, *(["http", "127.0.0.1", process.port, "GET", path] for path in probes))) == ["200"] * 4
    )
    headers = {"Authorization": f"Bearer {process.token}"}
    assert httpx.get(f"{process.base_url}/metrics", headers=headers, timeout=100).status_code == 200


@needs_root
def test_another_user_s_attacks_change_nothing(process: ServerProcess, tmp_path: Path) -> None:
    """A worktree task in a repository of one's own, and a file in the server user's home: refused, nothing happens."""
    repository = make_repository(tmp_path / "mine")
    home = tmp_path / "home"
    home.mkdir()
    task = {
        "task_id": "attack",
        "run_id": "1",
        "prompt": f"open({str(tmp_path / 'ran')!r}, 'w')",
        "execution_mode": "isolated-worktree",
        "project_root": str(repository),
    }
    target = f"127.0.0.1:{process.grpc_port}"
    entry = {"name": "home", "local_path": str(home)}
    write = {"repo_name": "home", "relative_path": ".ssh/authorized_keys", "content": "mine"}
    found = called(
        NOBODY,
        ["http", "127.0.0.1", process.port, "POST", "/tasks/submit", task],
        ["orphaned", "127.0.0.1", process.port, "/tasks/submit", task],
        ["grpc", target, "RepoRegistry", "AddRepo", {"repo": entry}],
        ["grpc", target, "FileWrite", "Write", write],
    )
    assert statuses(found) == ["401", "sent", "UNAUTHENTICATED", "UNAUTHENTICATED"]
    headers = {"Authorization": f"Bearer {process.token}"}
    listed = httpx.get(f"{process.base_url}/tasks", headers=headers, timeout=100).json()
    assert "attack" not in [item["task_id"] for item in listed["items"]]
    assert not (home / ".ssh").exists() and not (tmp_path / "ran").exists()


@needs_root
def test_all_addresses(tmp_path: Path) -> None:
    """A server of every address: IPv6 and IPv4 callers of another user are refused, those of its own are not."""
    (tmp_path / "config").mkdir()
    for name in ("runners.yml", "repos.yml"):
        shutil.copy(ROOT / "config" / name, tmp_path / "config" / name)
    with open_store(str(tmp_path / ".artifacts/data/metadata.db")) as store:
        store.tokens.create("first", ["admin"])
    with serving(tmp_path, grpc=True, host="::") as process:
        calls: list[list[Any]] = [
            ["http", "::1", process.port, "GET", "/tasks"],
            ["http", "::1", process.port, "GET", "/metrics"],
            *(
                ["grpc", f"{host}:{process.grpc_port}", "RepoRegistry", "ListRepos", {}]
                for host in ("[::1]", "127.0.0.1", "127.0.0.5")
            ),
        ]
        assert statuses(called(NOBODY, *calls)) == ["401", "401", *REFUSED * 3]
        assert statuses(called(0, *calls)) == ["200", "200", "OK", "OK", "OK"]


def test_a_command_of_the_server_needs_a_token(process: ServerProcess) -> None:
    """A task that calls back without a token is refused, and with one it is served."""
    ask = (
        "import sys, urllib.error, urllib.request\n"
        f"asked = urllib.request.Request('{process.base_url}/tasks', headers=dict(HEADERS))\n"
        "try: print(urllib.request.urlopen(asked).status)\n"
        "except urllib.error.HTTPError as error: print(error.code, error.read().decode())\n"
    )
    with httpx.Client(base_url=process.base_url, timeout=100) as http:
        for task, headers in (("bare", {}), ("token", {"Authorization": f"Bearer {process.token}"})):
            prompt = ask.replace("HEADERS", repr(headers))
            http.post("/tasks/submit", json={"task_id": task, "run_id": "1", "prompt": prompt}).raise_for_status()
            assert http.get(f"/tasks/{task}/wait", params={"timeout": 60}).json()["status"] == "success"
        said = {task: http.get(f"/tasks/{task}/log").text for task in ("bare", "token")}
    assert said["bare"].startswith("401 ") and "started by a server" in said["bare"]
    assert said["token"] == "200\n"


def test_a_callback_is_not_the_user_s_own_request(process: ServerProcess) -> None:
    """The server's own callback cannot be aimed at its routes for the user: another's task is not cancelled by it."""
    with httpx.Client(base_url=process.base_url, timeout=100) as http:
        body = {"run_id": "1", "prompt": "import time; time.sleep(600)"}
        http.post("/tasks/submit", json={**body, "task_id": "victim"}).raise_for_status()
        aim = {"status_callback_url": f"{process.base_url}/tasks/victim/cancel"}
        http.post("/tasks/submit", json={**body, "task_id": "aimed", "prompt": "0", **aim}).raise_for_status()
        log = process.root / "serve-1.err"
        eventually(lambda: "callback_postponed" in log.read_text(), what="a refused callback")
        assert http.get("/tasks/victim").json()["status"] in ("queued", "running")
        http.post("/tasks/victim/cancel").raise_for_status()
