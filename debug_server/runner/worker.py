"""WorkerSupervisor: runs one command in this process, for a caller that waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from debug_server.disk.ownership import Owner
from debug_server.errors import InvalidInputError
from debug_server.model import CommandSpec
from debug_server.ports import CommandStore, Lease, Telemetry
from debug_server.runner.deferred_signals import defer_signals
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.log_listener import ChunkCallback
from debug_server.runner.pipeline import Pipeline
from debug_server.runner.planning import OBSERVER_SECONDS, Job, Planner, resolve_cwd
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.runner.spec import CommandResult

if TYPE_CHECKING:
    from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
    from debug_server.worktrees.patches import SessionPatch


class WorkerSupervisor:
    """Runs commands, each in a leased workspace with an environment and a keeper.

    It has nothing to do with ``debug_server.workers``; users import it under this name. Safe to share between threads.
    The fork server starts with the first command and stops with ``close`` or with this process.
    """

    def __init__(
        self,
        *,
        metadata_store: CommandStore,
        paths: RunnerPaths,
        environment_manager: EnvironmentManager | None,
        base_env: Mapping[str, str] | None = None,
        settings: RunnerSettings | None = None,
        telemetry: Telemetry | None = None,
        pool: KeeperPool | None = None,
    ) -> None:
        self.settings = settings or RunnerSettings(paths)
        self.paths = paths
        self.store = metadata_store
        self._find_environments: Callable[[], EnvironmentManager | None] = lambda: environment_manager
        self.pool = pool or KeeperPool.of(self.settings)
        self._planner = Planner(self.settings, self.pool, base_env)
        self.pipeline = Pipeline(
            store=metadata_store,
            paths=paths,
            pool=self.pool,
            planner=self._planner,
            environments=lambda: self.environments,
            telemetry=telemetry,
        )
        self._owner: Owner | None = None
        self._owner_lock = threading.Lock()

    @classmethod
    def from_settings(
        cls,
        *,
        metadata_store: CommandStore,
        settings: RunnerSettings,
        base_env: Mapping[str, str] | None = None,
        telemetry: Telemetry | None = None,
        pool: KeeperPool | None = None,
    ) -> WorkerSupervisor:
        """Use the environments of ``settings``; their modules are loaded when the first environment is needed."""
        supervisor = cls(
            metadata_store=metadata_store,
            paths=settings.paths,
            environment_manager=None,
            base_env=base_env,
            settings=settings,
            telemetry=telemetry,
            pool=pool,
        )
        supervisor._find_environments = partial(_environments, settings)
        return supervisor

    @cached_property
    def environments(self) -> EnvironmentManager | None:
        """The environment manager; None if commands run without environments."""
        return self._find_environments()

    @property
    def owner(self) -> str:
        """The owner name that this process writes into its claims; its file is created and locked on first use."""
        with self._owner_lock:
            if self._owner is None:
                self.paths.prepare()
                self._owner = Owner(self.paths.owners_dir)
            return self._owner.name

    def run_command(
        self,
        session_id: int | str,
        spec: CommandSpec,
        lease: Lease,
        *,
        env_request: EnvironmentRequest | None = None,
        patch: SessionPatch | None = None,
        stream_observers: Sequence[ChunkCallback] | None = None,
        artifacts: Sequence[str] = (),
    ) -> CommandResult:
        """Run one command and return its result; without ``env_request``, in an environment named after the session."""
        number = session_number(session_id)
        return self.run_inline(
            number,
            spec,
            lease,
            env_request=env_request or self._default_request(number),
            patch=patch,
            observers=tuple(stream_observers or ()),
            artifacts=artifacts,
        )

    def run_inline(
        self,
        session_id: int,
        spec: CommandSpec,
        lease: Lease,
        *,
        env_request: EnvironmentRequest | None = None,
        patch: SessionPatch | None = None,
        observers: Sequence[ChunkCallback] = (),
        observer_seconds: float = OBSERVER_SECONDS,
        terminal_size: Mapping[str, int] | None = None,
        artifacts: Sequence[str] = (),
    ) -> CommandResult:
        """Add a command that this process has claimed and run it; without ``env_request`` it has no environment.

        The row exists before anything else happens, and has a terminal state before this returns or raises. It stores
        ``artifacts``, the globs of files to keep, for the process that recovers the command if this one dies.
        """
        with defer_signals():  # an interrupt must not leave a row without an end, or a lock held
            spec = spec.with_default_limits(self.settings.limits)
            cwd = self.check_request(spec, lease)
            command = self.store.commands.add(
                session_id=session_id,
                **spec.to_columns(inline=True, artifacts=artifacts),
                claim_owner=self.owner,
            )
            return self.pipeline.run(
                Job(
                    command=command,
                    spec=spec,
                    lease=lease,
                    env_request=env_request,
                    patch=patch,
                    observers=observers,
                    terminal_size=terminal_size,
                    observer_seconds=observer_seconds,
                    cwd=cwd,
                )
            )

    def check_request(self, spec: CommandSpec, lease: Lease) -> Path:
        """Check the request before a row is added; returns the command's directory. InvalidInputError if wrong."""
        self.check_enforceable(spec, Path(lease.path))
        return resolve_cwd(Path(lease.path), spec.cwd)

    def check_enforceable(self, spec: CommandSpec, workspace: Path | None) -> None:
        """UnmetRequirementError, or InvalidInputError, if the limits and the isolation cannot be had here.

        ``workspace`` is None before it is leased.
        """
        self._planner.check(spec.with_default_limits(self.settings.limits), workspace)

    def _default_request(self, session_id: int) -> EnvironmentRequest | None:
        if self.environments is None:
            return None
        from debug_server.runner.environment import EnvironmentRequest

        return EnvironmentRequest(name=str(session_id))

    def close(self) -> None:
        """Disconnect from the fork server; running commands continue under their keepers."""
        self.pipeline.close()
        self.pool.close()
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    def __enter__(self) -> WorkerSupervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _environments(settings: RunnerSettings) -> EnvironmentManager:
    from debug_server.runner.environment import EnvironmentManager

    return EnvironmentManager(settings.paths.environments_dir, build_timeout=settings.environments.build_timeout)


def session_number(session_id: int | str) -> int:
    """The session id as a number; InvalidInputError if it is not one."""
    try:
        return int(session_id)
    except ValueError as error:
        raise InvalidInputError(f"session {session_id!r} is not a number: `debug-server session list`") from error
