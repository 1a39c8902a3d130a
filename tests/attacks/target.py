"""A real server, run as one user in a folder of its own, and the programs that attack it as another."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from tests.other_users import as_user, owned_repository
from tests.running import TAG, rooted_in
from tests.servers import ServerProcess, unmount_below


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackSetup:
    """The folder of a campaign, the server's user and the attacker's."""

    root: Path
    python: str  # an interpreter with the product that every user may run
    uid: int  # of the server
    other: int | None  # of the attacker; None: this process cannot become another user
    short: bool = True
    say: Callable[[str], None] = print


class Target(ServerProcess):
    """A server that the campaign's user runs below one folder, with an environment and a home of its own."""

    def __init__(
        self,
        setup: AttackSetup,
        name: str,
        *,
        variables: Mapping[str, str] | None = None,
        descriptors: int | None = None,
        processes: int | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__(folder or setup.root / name, grpc=True, log_level="INFO", python=setup.python)
        self.setup = setup
        self._bounds = {"nofile": descriptors, "nproc": processes}
        self.home, self.data = self.root / "home", self.root / ".artifacts"
        for path in (self.root, self.home, self.data):
            path.mkdir(exist_ok=True)
            os.chown(path, setup.uid, setup.uid)
        self.variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "DEBUG_SERVER_ISOLATION_WORKSPACES": "none",  # these attacks need the weakest level to be made at all
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            TAG: str(self.root),
            **(variables or {}),
        }

    def _spawn(self, argv: list[str], stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        return as_user(
            self.setup.uid,
            argv,
            cwd=self.root,
            env=self.variables,
            stdout=stdout,
            stderr=stderr,
            bounds=self._bounds,
        )

    def client(self, *, timeout: float = 60.0) -> httpx.Client:
        """An HTTP client with the admin token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.base_url, headers=headers, timeout=timeout)

    def register(self, client: httpx.Client, name: str = "project") -> None:
        """Register a small repository that the server's user owns."""
        path = self.root / name
        if not path.exists():
            owned_repository(path, self.setup.uid)
        client.post("/repository/init", json={"name": name, "remote_url": str(path)}).raise_for_status()

    def close(self) -> None:
        """End the server and what its commands left, for the next case."""
        self.stop()
        for pid, _ in rooted_in(self.root, f"{TAG}={self.root}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        unmount_below(self.root)


@contextlib.contextmanager
def target(setup: AttackSetup, name: str, **options: Any) -> Iterator[Target]:
    """A server for the block."""
    found = Target(setup, name, **options)
    found.start()
    try:
        with found.client() as client:
            found.register(client)
        yield found
    finally:
        found.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacker:
    """Somebody else on this machine, with a folder of their own and the product's programs."""

    setup: AttackSetup
    uid: int
    home: Path = field(default_factory=Path)

    @classmethod
    def of(cls, setup: AttackSetup) -> Attacker:
        """The campaign's other user."""
        assert setup.other is not None
        home = setup.root / f"attacker-{setup.other}"
        home.mkdir(exist_ok=True)
        os.chown(home, setup.other, setup.other)
        return cls(setup=setup, uid=setup.other, home=home)

    def python(self, text: str, *arguments: object, seconds: float = 200.0) -> subprocess.CompletedProcess[str]:
        """Run a few lines of Python as the attacker."""
        argv = [self.setup.python, "-c", text, *map(str, arguments)]
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.home)}
        process = as_user(self.uid, argv, cwd=self.home, env=env)
        try:
            out, err = process.communicate(timeout=seconds)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return subprocess.CompletedProcess(argv, process.returncode, out.decode(), err.decode())
