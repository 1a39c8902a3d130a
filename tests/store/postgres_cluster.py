"""A private PostgreSQL cluster for one test run, reachable by a Unix socket only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from debug_server.store.address import is_postgres
from tests.running import eventually

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class ClusterUnavailableError(Exception):
    """Why there is no cluster on this machine."""


class Cluster:
    """A running server; every test gets a database of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def url(self, name: str) -> str:
        return f"postgresql:///{name}?host={self._directory}&user=tester"

    def execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        name = f"t{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Start a cluster, end it and remove it; ClusterUnavailableError says why there is none."""
    initdb, postgres = _program("initdb"), _program("postgres")
    identity = _identity()
    directory = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        if identity:
            os.chown(directory, identity["user"], identity["group"])
        data = directory / "data"
        _initialise(initdb, data, directory, identity)
        with _serving(postgres, data, directory, identity):
            yield Cluster(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def await_no_connection(database_url: str) -> None:
    """Wait until a PostgreSQL server has done everything for those who were connected to a database."""
    if not is_postgres(database_url):
        return
    import psycopg

    name = urlsplit(database_url).path.lstrip("/")
    with psycopg.connect(database_url, dbname="postgres", autocommit=True) as connection:
        found = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        eventually(lambda: connection.execute(found, (name,)).fetchone() == (0,), what="the end of every connection")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        found = str(installed[-1]) if installed else None
    if found is None:
        raise ClusterUnavailableError(f"there is no {name} on this machine")
    return found


def _identity() -> dict[str, Any]:
    """Both programs refuse to run as root: name somebody else."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise ClusterUnavailableError("there is no unprivileged user to run PostgreSQL as")


def _initialise(initdb: str, data: Path, directory: Path, identity: dict[str, Any]) -> None:
    done = subprocess.run(
        [initdb, "-D", data, "--no-sync", "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-locale"],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **identity,
    )
    if done.returncode:
        raise ClusterUnavailableError(f"initdb failed: {done.stderr.strip()[-300:]}")


@contextlib.contextmanager
def _serving(postgres: str, data: Path, directory: Path, identity: dict[str, Any]) -> Iterator[None]:
    settings = {
        "unix_socket_directories": str(directory),
        "listen_addresses": "",
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "max_connections": "120",
        "shared_buffers": "32MB",
    }
    options = [item for name, value in settings.items() for item in ("-c", f"{name}={value}")]
    with (directory / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [postgres, "-D", data, *options],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # A test process that is killed takes its server along.
            preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT),  # noqa: PLW1509
            **identity,
        )
    try:
        _await_answer(server, Cluster(directory), directory / "server.log")
        yield
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait(timeout=30)


def _await_answer(server: subprocess.Popen[bytes], cluster: Cluster, log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            return cluster.execute("SELECT 1")
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise ClusterUnavailableError(f"postgres did not start: {log.read_text()[-300:]}") from error
            time.sleep(0.02)
