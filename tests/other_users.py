"""Programs that run as another user of this machine, and what such a user needs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.repositories import make_repository
from tests.running import ROOT

_SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534
_LISTEN = """
import contextlib, os, socket, sys
uid, host = int(sys.argv[1]), sys.argv[2]
os.setuid(uid)
family = socket.AF_INET6 if ":" in host else socket.AF_INET
with socket.create_server((host, int(sys.argv[3])), family=family) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        if heard := connection.recv(65536):
            print(heard, flush=True)
        with contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 401 Unauthorized\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{}")
        connection.close()
"""


def as_user(
    uid: int,
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: Any = subprocess.PIPE,
    stderr: Any = subprocess.PIPE,
    bounds: Mapping[str, int | None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program as ``uid``, in a session of its own; ``bounds`` are limits by their names for prlimit."""
    become: dict[str, Any] = {} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}
    limits = [f"--{name}={most}:{most}" for name, most in (bounds or {}).items() if most is not None]
    return subprocess.Popen(
        [*(["prlimit", *limits] if limits else []), *argv],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        **become,
    )


def owned_repository(path: Path, uid: int, files: Mapping[str, str] | None = None) -> Path:
    """A git repository with one commit that belongs to ``uid``."""
    make_repository(path, files)
    if uid != os.geteuid():
        for entry in [path, *path.rglob("*")]:
            os.lchown(entry, uid, uid)
    return path


def shared_python(folder: Path) -> str:
    """An interpreter with the product, in a place that every user can reach.

    The checkout, its environment or its interpreter may lie in a home folder that is closed to others.
    """
    if os.geteuid() != 0:
        return sys.executable
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    place = folder / "product"
    python = str(place / "bin" / "python")
    copied = {**os.environ, "UV_LINK_MODE": "copy"}
    locked = ["--constraint", str(ROOT / "requirements/dev.txt")]
    for line in (
        ["venv", "--python", _SYSTEM_PYTHON, str(place)],
        ["pip", "install", "--python", python, *locked, str(ROOT)],
    ):
        subprocess.run([uv, *line], env=copied, cwd=folder, capture_output=True, check=True)
    return python


class Taken:
    """A port that another user listens on, and what came there."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self.port = int(process.stdout.readline())

    def heard(self) -> str:
        """Everything, at the end."""
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()  # its output may end before its port is free
        return self._process.stdout.read()


@contextlib.contextmanager
def taken(host: str, port: int = 0, uid: int = NOBODY) -> Iterator[Taken]:
    """Another user's listener."""
    argv = [sys.executable, "-I", "-S", "-c", _LISTEN, str(uid), host, str(port)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        yield Taken(process)
    finally:
        process.kill()
        process.wait()
