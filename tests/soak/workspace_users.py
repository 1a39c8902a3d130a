"""Processes that lease workspaces, build environments and run commands in them until they are killed.

Each notes what it did and reports what must never be: a workspace that differs from its commit, two holders of
one, an environment that is not whole, an error that nobody expects.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from debug_server.app import Local
from debug_server.disk import list_mounts
from debug_server.errors import CapacityExhaustedError, EnvironmentBuildError, LeaseLostError
from debug_server.model import CommandSpec, EnvironmentPlan
from debug_server.surfaces.cli.run import Shown, WorkspaceOptions, run_in_workspace
from debug_server.worktrees import WorktreeLease
from tests.soak.workspace_setup import LEASE_SECONDS, LONG_LEASE_SECONDS, WorkspaceSetup, digest, what_is_missing

_COLLECTOR_GRACE = 0.05  # so short that users and the collector meet
_RECOVER_SECONDS = 60.0
_RECOVER_AGAIN_SECONDS = 1.5
_AN_IDLE_MOMENT = timedelta(seconds=1)


class WorkspaceUser:
    """One process; a seed decides what it does."""

    def __init__(self, setup: WorkspaceSetup, seed: int) -> None:
        self._setup = setup
        self._draw = random.Random(seed)
        self._local = setup.open(lease_seconds=self._draw.choice([LEASE_SECONDS, LONG_LEASE_SECONDS]))
        self._expected = setup.expected
        environments = self._local.supervisor.environments
        assert environments is not None
        self._environments = environments
        self._actions: list[tuple[int, str, Callable[[], None]]] = [
            (30, "lease", self._lease),
            (30, "environment", self._environment),
            (20, "run", self._run),
            (8, "collect", self._collect),
            (6, "recover", self._recover),
            (6, "reclaim", self._reclaim),
        ]

    def act(self) -> None:
        """Do one thing."""
        _, name, action = self._draw.choices(self._actions, [weight for weight, _, _ in self._actions])[0]
        try:
            action()
        except (CapacityExhaustedError, LeaseLostError):
            name = f"{name}-refused"  # the price of leases that end after seconds
        with self._setup.actions.open("a") as file:
            file.write(f"{name}\n")

    def _commit(self) -> str:
        return self._draw.choice(sorted(self._expected))

    def _lease(self) -> None:
        pool = self._local.sessions.pool(self._local.sessions.register_reachable(str(self._setup.remote)))
        lease = pool.acquire_worktree(commit_sha=self._commit(), owner=f"user-{os.getpid()}", environment_hash=None)
        with self._sole_holder(lease):
            self._check_tree(lease)
            self._dirty(lease.path)
            manner = self._draw.random()
            if manner < 0.25:
                lease.diff()
            elif manner < 0.5:
                lease.reset()
                self._check_tree(lease)
            elif manner < 0.75:
                for fork in lease.fork(1):
                    with self._sole_holder(fork):
                        if digest(fork.path) != digest(lease.path):
                            self.report(f"{fork.path} differs from {lease.path}, of which it is a fork")
                    fork.release()
        lease.release()

    @contextmanager
    def _sole_holder(self, lease: WorktreeLease) -> Iterator[None]:
        """A lock that ends with the process; the open folder keeps the workspace from being reissued to another."""
        lock = os.open(self._setup.root / f"holder-{lease.path.name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        folder = os.open(lease.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            lease.renew()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.report(f"{lease.path} has two holders")
            yield
        finally:
            os.close(folder)
            os.close(lock)

    def _check_tree(self, lease: WorktreeLease) -> None:
        if digest(lease.path) != self._expected[lease.commit_sha]:
            self.report(f"{lease.path} is not {lease.commit_sha}")

    def _dirty(self, path: Path) -> None:
        for number in range(self._draw.randrange(6)):
            (path / f"left-{number}").write_bytes(b"x" * self._draw.randrange(10_000))

    def _environment(self) -> None:
        request = self._setup.request(self._draw)
        handle = self._environments.ensure(request, force=self._draw.random() < 0.3)
        try:
            with handle.hold():
                self._check_environment(what_is_missing(handle, request))
                time.sleep(self._draw.uniform(0, 0.1))
                self._check_environment(what_is_missing(handle, request))
        except EnvironmentBuildError as error:
            if "was collected" not in str(error):
                raise

    def _check_environment(self, missing: str | None) -> None:
        if missing is not None:
            self.report(f"an environment that is not whole was served: {missing}")

    def _run(self) -> None:
        """What ``debug-server run --repo`` does."""
        patch = self._setup.scratch.parent / f"patch-{os.getpid()}"
        patch.write_bytes(self._setup.patch())
        script = "test -f soak-requirements.txt && echo ready; sleep 0.1"
        status = run_in_workspace(
            self._local.foreground,
            CommandSpec(["sh", "-c", script], log_name="run"),
            WorkspaceOptions(
                repository=str(self._setup.remote),
                commit=self._commit(),
                patch=patch.read_bytes(),
                environment=EnvironmentPlan(manifests=("soak-requirements.txt",)),
                artifacts=[],
            ),
            Shown(quiet=True),
        )
        if status != 0:
            self.report(f"a run ended with status {status}")

    def _collect(self) -> None:
        self._environments.collect_garbage(max_idle=self._draw.choice([0.0, 5.0]), grace=_COLLECTOR_GRACE)

    def _recover(self) -> None:
        """What the next server, or the next `debug-server session …` without one, does first."""
        engine = self._setup.open().engine
        engine.start()
        time.sleep(self._draw.uniform(0, 0.2))
        engine.stop()

    def _reclaim(self) -> None:
        repository = self._local.sessions.register_reachable(str(self._setup.remote))
        self._local.sessions.pool(repository).reclaim_stale_worktrees(max_idle_age=_AN_IDLE_MOMENT)

    def report(self, text: str) -> None:
        """Say what must not be."""
        with self._setup.violations.open("a") as file:
            file.write(f"{text}\n")


def run_until_killed(root: Path, backend: str, seed: int) -> NoReturn:
    """Act until this process is killed."""
    setup = WorkspaceSetup(root, backend)
    user = _started_user(setup, seed)
    while True:
        try:
            user.act()
        except Exception:  # noqa: BLE001  (whatever it is goes to the checker)
            user.report(traceback.format_exc().replace("\n", " | "))


def recover_everything(root: Path, backend: str) -> NoReturn:
    """Be the last one: recover until nothing is left that could be, or time is up."""
    setup = WorkspaceSetup(root, backend)
    _started_user(setup, 0)
    local = setup.open()
    environments = local.supervisor.environments
    assert environments is not None
    local.engine.start()
    pool = local.sessions.pool(local.sessions.register_reachable(str(setup.remote)))
    deadline = time.monotonic() + _RECOVER_SECONDS
    while time.monotonic() < deadline and not _is_recovered(local, setup):
        local.sessions.close_abandoned()
        pool.recover()
        time.sleep(_RECOVER_AGAIN_SECONDS)
    environments.collect_garbage(grace=0.0)
    pool.reclaim_stale_worktrees(max_idle_age=timedelta(0))
    for item in environments.installed():
        for path, what in environments.verify(item.fingerprint).items():
            with setup.violations.open("a") as file:
                file.write(f"environment {item.key}: {path} {what}\n")
    while time.monotonic() < deadline and list(pool.settings.state_dir.glob("trash/*")):
        time.sleep(0.05)
    local.engine.stop(grace=5.0)
    local.close()
    os._exit(0)


def _is_recovered(local: Local, setup: WorkspaceSetup) -> bool:
    rows = [row for known in local.store.repositories.page() for row in local.store.worktrees.page(known.id)]
    return (
        not local.sessions.open_sessions()
        and not local.store.queue.claimed()
        and all(row.status == "idle" for row in rows)
        and not list_mounts(setup.root)
    )


def _started_user(setup: WorkspaceSetup, seed: int) -> WorkspaceUser:
    """A user with streams of its own (the spawner's lead to the campaign) and a folder for what is temporary."""
    os.environ["TMPDIR"] = str(setup.scratch)
    os.environ["UV_CACHE_DIR"] = str(setup.root / "uv-cache")
    said = os.open(setup.root / "users.out", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in (1, 2):
        os.dup2(said, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return WorkspaceUser(setup, seed)
