"""Containers of a real engine: what they are allowed, and that none stays, however its task ends."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.running import eventually
from tests.tasks.task_server import TaskServer

MakeServer = Callable[..., TaskServer]

IMAGE = "localhost/debug-server-test:0"
APPLETS = ("sh", "cat", "echo", "id", "ls", "sleep", "touch", "true")
SETTINGS = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'


class Podman:
    """An engine with a storage of its own."""

    def __init__(self, state: Path) -> None:
        self.program = state / "podman"
        settings = state / "containers.conf"
        settings.write_text(SETTINGS)
        places = f"--root {state}/root --runroot {state}/run --tmpdir {state}/tmp --storage-driver vfs"
        kinds = "--runtime runc --cgroup-manager cgroupfs --events-backend none"
        line = f'CONTAINERS_CONF={settings} exec {shutil.which("podman")} {places} {kinds} "$@"'
        self.program.write_text(f"#!/bin/sh\n{line}\n")
        self.program.chmod(0o755)

    def ask(self, *arguments: str, data: bytes = b"") -> str:
        """What it says."""
        done = subprocess.run([self.program, *arguments], input=data, capture_output=True, timeout=60, check=False)
        if done.returncode:
            raise OSError(done.stderr.decode(errors="replace").strip()[-300:])
        return done.stdout.decode()

    def containers(self) -> list[str]:
        """The names of those that there are, running or not."""
        return self.ask("ps", "--all", "--format", "{{.Names}}").split()

    def look(self) -> list[str] | None:
        """The same while containers come and go; None when one went as it was listed."""
        with suppress(OSError):
            return self.containers()
        return None


def image() -> bytes:
    """A root file system with one static program under some of its names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add("/bin/busybox", "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return buffer.getvalue()


@pytest.fixture
def podman() -> Iterator[Podman]:
    """Where it can be had: it needs root, or much that a plain user of a test machine has not."""
    missing = [name for name in ("podman", "runc", "/bin/busybox") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root, podman, runc and a static busybox; missing: {', '.join(missing) or 'root'}")
    with tempfile.TemporaryDirectory(prefix="podman-") as state:  # it wants short names
        engine = Podman(Path(state))
        try:
            engine.ask("import", "-", IMAGE, data=image())
            engine.ask("run", "--rm", "--network", "none", IMAGE, "true")
        except OSError as error:
            pytest.skip(f"podman cannot run a container here: {error}")
        yield engine
        assert engine.containers() == []


def sandbox(*command: str) -> dict[str, Any]:
    return {"execution_mode": "docker-sandbox", "sandbox": {"image": IMAGE, "command": list(command), "workdir": "/"}}


def test_what_a_container_is_allowed(make_server: MakeServer, podman: Podman) -> None:
    """No network but loopback, nothing to write but /tmp, the prompt in its environment, its status and its output."""
    server = make_server(docker_bin=str(podman.program))
    look = "ls /sys/class/net; touch /new; touch /tmp/new && echo tmp; echo $HOST_RUNNER_PROMPT; exit 3"
    found = server.run("t", "the prompt", **sandbox("sh", "-c", look))
    assert (found["status"], found["exit_code"]) == ("failed", 3), found
    assert found["stdout"].split("\n") == ["lo", "tmp", "the prompt", ""]
    assert "Read-only file system" in found["stderr"]
    assert len(found["container_id"]) == 64


def test_no_container_stays(make_server: MakeServer, podman: Podman) -> None:
    """After a cancel, a timeout and the death of its keeper."""
    server = make_server(docker_bin=str(podman.program))
    server.submitted("cancelled", **sandbox("sleep", "1000"))
    eventually(podman.look, what="a container")
    assert server.cancel("cancelled")["status"] == "canceled"
    assert podman.containers() == []
    found = server.run("late", timeout_seconds=2, **sandbox("sleep", "1000"))
    assert found["message"] == "docker sandbox execution timed out"
    assert podman.containers() == []
    server.submitted("lost", **sandbox("sleep", "1000"))
    eventually(podman.look, what="a container")
    number = server.get("lost")["command_id"]
    handle = eventually(lambda: server.local.store.commands.handle(number), what="its recorded start")
    subprocess.run(["kill", "-9", str(handle["keeper"]["pid"])], check=True)
    assert server.ended("lost")["exit_reason"] == "lost"
    eventually(lambda: podman.look() == [], what="the removal of its container")
