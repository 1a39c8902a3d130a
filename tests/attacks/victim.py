"""A real server, run as one user in a folder of its own, and the programs that attack it as another."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from tests.client.serving import ServerProcess, make_repository, unmount_below
from tests.running import ROOT, TAG, rooted_in

_SYSTEM_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """Where a campaign happens and who takes part."""

    root: Path
    python: str  # an interpreter with the product that every user may run
    uid: int  # of the server
    other: int | None  # of the attacker; None: this process cannot become another user
    short: bool = True
    say: Callable[[str], None] = print

    @property
    def privileged(self) -> bool:
        """Whether the server runs as root."""
        return self.uid == 0


class Victim(ServerProcess):
    """A server that the arena's user runs below one folder, with an environment and a home of its own."""

    def __init__(
        self,
        arena: Arena,
        name: str,
        *,
        variables: Mapping[str, str] | None = None,
        descriptors: int | None = None,
        processes: int | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__(folder or arena.root / name, grpc=True, log_level="INFO", python=arena.python)
        self.arena = arena
        self._bounds = {"nofile": descriptors, "nproc": processes}
        self.home, self.data = self.root / "home", self.root / ".artifacts"
        for path in (self.root, self.home, self.data):
            path.mkdir(exist_ok=True)
            os.chown(path, arena.uid, arena.uid)
        self.variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            TAG: str(self.root),
            **(variables or {}),
        }

    def _spawn(self, argv: list[str], stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        return as_user(
            self.arena.uid,
            argv,
            cwd=self.root,
            env=self.variables,
            stdout=stdout,
            stderr=stderr,
            bounds=self._bounds,
        )

    def client(self, *, timeout: float = 30.0) -> httpx.Client:
        """An HTTP client with the admin token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.base_url, headers=headers, timeout=timeout)

    def register(self, client: httpx.Client, name: str = "project") -> None:
        """Register a small repository that the server's user owns."""
        path = self.root / name
        if not path.exists():
            owned_repository(path, self.arena.uid)
        client.post("/repository/init", json={"name": name, "remote_url": str(path)}).raise_for_status()

    def close(self) -> None:
        """End the server and what its commands left, for the next case."""
        self.stop()
        for pid, _ in rooted_in(self.root, f"{TAG}={self.root}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        unmount_below(self.root)


@contextlib.contextmanager
def victim(arena: Arena, name: str, **options: Any) -> Iterator[Victim]:
    """A server for the block."""
    found = Victim(arena, name, **options)
    found.start()
    try:
        with found.client() as client:
            found.register(client)
        yield found
    finally:
        found.close()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacker:
    """Somebody else on this machine, with a folder of their own and the product's programs."""

    arena: Arena
    uid: int
    home: Path = field(default_factory=Path)

    @classmethod
    def of(cls, arena: Arena) -> Attacker:
        """The arena's other user."""
        assert arena.other is not None
        home = arena.root / f"attacker-{arena.other}"
        home.mkdir(exist_ok=True)
        os.chown(home, arena.other, arena.other)
        return cls(arena=arena, uid=arena.other, home=home)

    def python(self, text: str, *arguments: object, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a few lines of Python as the attacker."""
        argv = [self.arena.python, "-c", text, *map(str, arguments)]
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.home)}
        process = as_user(self.uid, argv, cwd=self.home, env=env)
        try:
            out, err = process.communicate(timeout=seconds)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return subprocess.CompletedProcess(argv, process.returncode, out.decode(), err.decode())


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
