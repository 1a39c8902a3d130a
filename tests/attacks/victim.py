"""A real server, run as one user in a folder of its own, and the programs that attack it as another."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from debug_server.worktrees.mount import detach, list_mounts
from tests.running import ROOT, TAG, eventually, lasting_port, rooted_in

_TOKEN = re.compile(r"shown this once: (\S+)")
_SYSTEM_PYTHON = "/usr/bin/python3"
_SERVE_SECONDS = 60.0


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


class Victim:
    """``debug-server serve`` below one folder; it can be killed and started again on the same ports."""

    def __init__(
        self,
        arena: Arena,
        name: str,
        *,
        variables: Mapping[str, str] | None = None,
        descriptors: int | None = None,
        folder: Path | None = None,
    ) -> None:
        self.arena = arena
        self.root = folder or arena.root / name
        self.port, self.grpc_port = lasting_port(), lasting_port()
        self.token = ""
        self._descriptors = descriptors
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        home = self.root / "home"
        self.data = self.root / ".artifacts"
        for path in (self.root, home, self.data):
            path.mkdir(exist_ok=True)
            os.chown(path, arena.uid, arena.uid)
        self.home = home
        self._variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            TAG: str(self.root),
            **(variables or {}),
        }

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it serves."""
        self._starts += 1
        out = self.root / f"serve-{self._starts}.out"
        argv = [self.arena.python, "-m", "debug_server", "serve"]
        argv += ["--port", str(self.port), "--grpc-port", str(self.grpc_port)]
        with out.open("wb") as target, self.log.open("ab") as errors:
            self._process = as_user(
                self.arena.uid,
                argv,
                cwd=self.root,
                env=self._variables,
                stdout=target,
                stderr=errors,
                descriptors=self._descriptors,
            )
        text = eventually(lambda: self._said(out), _SERVE_SECONDS, "a serving server")
        if found := _TOKEN.search(text):
            self.token = found[1]

    def _said(self, out: Path) -> str | None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended: {self.log.read_text()[-2000:]}")
        text = out.read_text()
        return text if "serving gRPC" in text else None

    @property
    def log(self) -> Path:
        """What the server wrote on stderr."""
        return self.root / "serve.err"

    def kill(self) -> None:
        """As a crash would."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """As an operator would."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def client(self, *, timeout: float = 30.0) -> httpx.Client:
        """An HTTP client with the admin token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.base_url, headers=headers, timeout=timeout)

    def register(self, client: httpx.Client, name: str = "project") -> None:
        """Register a small repository that the server's user owns."""
        path = self.root / name
        if not path.exists():
            make_repository(path, self.arena.uid)
        client.post("/repository/init", json={"name": name, "remote_url": str(path)}).raise_for_status()

    def close(self) -> None:
        """End the server and what its commands left, for the next case."""
        self.stop()
        for pid, _ in rooted_in(self.root, f"{TAG}={self.root}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for mount in reversed(list_mounts(self.root)):
            detach(mount.target)


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
    descriptors: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program as ``uid``, in a session of its own."""
    become: dict[str, Any] = {} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}

    bound = [] if descriptors is None else ["prlimit", f"--nofile={descriptors}:{descriptors}"]
    return subprocess.Popen(
        [*bound, *argv],
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


def make_repository(path: Path, uid: int, files: Mapping[str, str] | None = None) -> Path:
    """A git repository with one commit that belongs to ``uid``."""
    path.mkdir(parents=True)
    for name, text in (files or {"a.txt": "hello\n"}).items():
        (path / name).write_text(text)
    author = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environ = {**os.environ, **author, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(["git", *arguments], cwd=path, env=environ, check=True)
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


def wait_ended(client: httpx.Client, number: int, seconds: float) -> dict[str, Any]:
    """The command once it has ended; fails after ``seconds``. A server that is away for a moment is asked again."""
    deadline = time.monotonic() + seconds
    last: dict[str, Any] = {}
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            answer = client.get(f"/commands/{number}")
            if answer.is_success:
                last = answer.json()
                if last["status"] not in ("pending", "running"):
                    return last
        time.sleep(0.05)
    raise AssertionError(f"command {number} did not end within {seconds:g} s: {last}")
