"""codex and docker: what they are started with, and that nothing of them stays."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from debug_server.config.tasks import TasksConfig
from debug_server.messages.tasks import RunnerSubmit
from debug_server.tasks.docker_executor import DockerExecutor
from tests.gateway.gateway_process import codex_home, require_codex
from tests.gateway.responses_stub import ResponsesStub
from tests.running import eventually
from tests.tasks.task_server import TaskServer

MakeServer = Callable[..., TaskServer]
PROGRAM = Path(__file__).parent / "programs" / "fake_docker.py"
HARDENED = [
    *("--read-only", "--tmpfs", "/tmp:rw,noexec,nosuid,size=64m", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges:true", "--network", "none", "--pids-limit", "256"),
    *("--memory", "2g", "--cpus", "2.0"),
]


def script(path: Path, text: str) -> str:
    """A program."""
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_codex_gets_the_prompt_on_stdin(make_server: MakeServer, tmp_path: Path) -> None:
    """``<bin> exec <args> -``; a prompt of any kind is exactly its stdin, and is in neither arguments nor variables."""
    codex = script(tmp_path / "codex", '#!/bin/bash\necho "$@" >&2\nenv >&2\nexec cat\n')
    server = make_server(executor="codex", codex_bin=codex, codex_args="--json -c 'model=\"x y\"'")
    prompt = "do $(this)\n'and' \"that\" " + "é" * 200_000
    found = server.run("t", prompt)
    assert (found["status"], found["message"]) == ("success", "codex execution completed")
    assert found["stdout_bytes"] == len(prompt.encode()) and "$(this)" not in found["stderr"]
    assert found["stderr"].splitlines()[0] == 'exec --json -c model="x y" -'


def test_a_missing_program_is_named(make_server: MakeServer, tmp_path: Path) -> None:
    """The task fails with the words that its users know; one that is there and cannot be started is told apart."""
    assert make_server(executor="codex", codex_bin="no-such-codex").run("t")["message"] == "codex binary not found"
    mine = tmp_path / "codex"
    mine.write_text("no program")
    found = make_server(executor="codex", codex_bin=str(mine)).run("t")
    assert found["message"] == f"codex execution failed: cannot start {str(mine)!r}: Permission denied"
    server = make_server(docker_bin="no-such-docker")
    found = server.run("t", execution_mode="docker-sandbox", sandbox={"image": "the-image", "command": ["true"]})
    assert (found["status"], found["message"], found["executor"]) == ("failed", "docker binary not found", "docker")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A container engine's state; its command line is ``docker`` in it, its daemon a thread."""
    state = tmp_path / "engine"
    state.mkdir()
    script(state / "docker", f'#!/bin/sh\nexec {sys.executable} -S {PROGRAM} "$@"\n')
    monkeypatch.setenv("DOCKER_CONFIG", str(state))
    done = threading.Event()
    daemon = threading.Thread(target=serve_containers, args=(state, done))
    daemon.start()
    yield state
    done.set()
    daemon.join()


def serve_containers(state: Path, done: threading.Event) -> None:
    """Start what clients ask for; forget what has ended."""
    living: dict[Path, subprocess.Popen[bytes]] = {}
    while not done.wait(0.01):
        for ask in state.glob("*.ask"):
            living[ask.with_suffix("")] = subprocess.Popen(json.loads(ask.read_text()), start_new_session=True)
            ask.with_suffix("").write_text(str(living[ask.with_suffix("")].pid))
            ask.unlink()
        for place, process in list(living.items()):
            if process.poll() is not None:
                place.unlink()
                del living[place]
    for process in living.values():
        process.kill()
        process.wait()


def sandbox(*command: str, **more: Any) -> dict[str, Any]:
    return {"execution_mode": "docker-sandbox", "sandbox": {"image": "the-image", "command": list(command), **more}}


def containers(engine: Path) -> list[Path]:
    return [path for path in engine.glob("host-runner-*") if path.suffix not in (".ask", ".draft") and _pid(path)]


def _pid(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:  # it has ended since the folder was listed
        return ""


def test_a_container_is_hardened(make_server: MakeServer, engine: Path) -> None:
    """Every flag of the contract, mounts, a working directory, variables by name only; its id is told."""
    server = make_server(docker_bin=str(engine / "docker"))
    mounts = [{"source": "/a b", "target": "/c", "read_only": True}, {"source": "/d", "target": "/e"}]
    asked = sandbox("sh", "-c", "true", env={"SECRET": "s3"}, mounts=mounts)
    found = server.run("t 1", "the prompt", **asked)
    assert (found["status"], found["message"]) == ("success", "docker sandbox execution completed"), found
    assert found["container_id"] == "f" * 64
    argv = json.loads((engine / "argv").read_text())
    assert argv[:3] == ["--rm", "--name", argv[2]] and argv[2].startswith("host-runner-t-1-")
    text = " ".join(argv)
    assert " ".join(HARDENED) in text and "-w /workspace/project" in text
    assert "--mount type=bind,source=/a b,target=/c,readonly --mount type=bind,source=/d,target=/e" in text
    assert "--env SECRET " in text and "s3" not in text and "the prompt" not in text
    assert argv[argv.index("the-image") :] == ["the-image", "sh", "-c", "true"]
    assert containers(engine) == []


def test_variables_of_a_container_do_not_steer_its_client(tmp_path: Path) -> None:
    """They reach the container with the task's values and never the environment of the program on the host."""
    steering = {
        "DOCKER_HOST": "tcp://evil:1",
        "LD_PRELOAD": "/e.so",
        "HOME": "/in/it",
        "https_proxy": "p",
        "PATH": "/b",
        "GODEBUG": "x",
        "PODMAN_USERNS": "host",
        "_CONTAINERS_USERNS_CONFIGURED": "1",
        "PYTHONPATH": "/e",
        "TMPDIR": "/e",
    }
    body = {"task_id": "t", "run_id": "r", "prompt": "p", **sandbox("true", env={**steering, "KEY": "secret"})}
    command = DockerExecutor(TasksConfig(), tmp_path).command(RunnerSubmit.model_validate(body))
    assert not set(steering.items()) & set(command.env.items()) and command.env["KEY"] == "secret"
    assert {f"{key}={value}" for key, value in steering.items()} | {"KEY", "HOST_RUNNER_PROMPT"} <= set(command.argv)
    assert "secret" not in " ".join(command.argv)


def test_a_container_is_gone_after_cancel_and_timeout(make_server: MakeServer, engine: Path) -> None:
    """The engine's process outlives its client, and is removed all the same."""
    server = make_server(docker_bin=str(engine / "docker"))
    server.submitted("c", **sandbox("sleep", "1000"))
    (container,) = eventually(lambda: containers(engine), what="a container")
    pid = int(container.read_text())
    found = server.cancel("c")
    assert (found["status"], found["container_id"]) == ("canceled", "f" * 64)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), what="its end")
    found = server.run("t", timeout_seconds=1, **sandbox("sleep", "1000"))
    assert found["message"] == "docker sandbox execution timed out"
    eventually(lambda: containers(engine) == [], what="its end")


def test_a_container_is_gone_after_its_keeper(make_server: MakeServer, engine: Path) -> None:
    """A task whose keeper was killed ends as failed, and its container is removed."""
    server = make_server(docker_bin=str(engine / "docker"))
    server.submitted("t", **sandbox("sleep", "1000"))
    (container,) = eventually(lambda: containers(engine), what="a container")
    pid = int(container.read_text())
    number = server.get("t")["command_id"]
    handle = eventually(lambda: server.local.store.commands.handle(number), what="its recorded start")
    subprocess.run(["kill", "-9", str(handle["keeper"]["pid"])], check=True)
    found = server.ended("t")
    assert (found["status"], found["exit_reason"]) == ("failed", "lost")
    eventually(lambda: not Path(f"/proc/{pid}").exists() and not containers(engine), what="its end")


def test_no_engine_answers(make_server: MakeServer, engine: Path) -> None:
    """The message has the engine's own words."""
    (engine / "down").touch()
    server = make_server(docker_bin=str(engine / "docker"))
    found = server.run("t", **sandbox("true"))
    assert found["message"].startswith("docker sandbox execution failed: Cannot connect to the Docker daemon")
    assert (found["status"], found["exit_code"]) == ("failed", 125)


def test_the_machines_own_engine(make_server: MakeServer) -> None:
    """With a real command line and no daemon behind it the message is as clear."""
    if shutil.which("docker") is None:
        pytest.skip("there is no docker here")
    server = make_server(docker_bin="docker")
    found = server.run("t", **sandbox("true", image="debug-server-test/no-such-image:0"))
    assert found["status"] == "failed" and found["message"].startswith("docker sandbox execution failed: ")


def test_the_real_codex(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """``codex exec`` from npm does a task against a local model, and a cancel leaves nothing of it."""
    codex, stub = require_codex(), ResponsesStub()
    with codex_home() as home:
        stub.configure(home)
        monkeypatch.setenv("CODEX_HOME", str(home))
        arguments = "--skip-git-repo-check --sandbox read-only"
        server = make_server(executor="codex", codex_bin=str(codex), codex_args=arguments)
        found = server.run("t", "SAY hello from codex")
        assert (found["status"], found["message"]) == ("success", "codex execution completed"), found
        assert "hello from codex" in found["stdout"]
        server.submitted("slow", "SLOW 2000")
        eventually(lambda: len(stub.requests) > 1, what="the second request")
        assert server.cancel("slow")["status"] == "canceled"
    stub.close()
