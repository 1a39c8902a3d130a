"""Makes the keeper's order from a claimed command: its log path, variables and limits."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from debug_server.disk.ownership import owner_file
from debug_server.errors import InvalidInputError
from debug_server.model import Command, CommandSpec, check_name
from debug_server.ports import Lease
from debug_server.runner import child_environment
from debug_server.runner.end_recorder import STORE_SECONDS
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.launch import LaunchOrder
from debug_server.runner.limits import plan_limits
from debug_server.runner.log_format import index_path
from debug_server.runner.log_listener import ChunkCallback
from debug_server.runner.running_command import RunningCommand
from debug_server.runner.settings import RunnerPaths, RunnerSettings

if TYPE_CHECKING:
    from debug_server.runner.environment import EnvironmentRequest
    from debug_server.worktrees.patches import SessionPatch

OBSERVER_SECONDS = 10.0
_TERMINAL_SIZE = {"rows": 24, "cols": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The plan of one claimed command: its row, what to run, and where."""

    command: Command
    spec: CommandSpec
    lease: Lease
    env_request: EnvironmentRequest | None = None
    patch: SessionPatch | None = None
    observers: Sequence[ChunkCallback] = ()
    observer_seconds: float = OBSERVER_SECONDS  # how long to wait for a slow observer after the end
    terminal_size: Mapping[str, int] | None = None
    cwd: Path | None = None  # checked by the caller
    on_start: Callable[[RunningCommand], None] | None = None  # called when the row says ``running``
    store_seconds: float = STORE_SECONDS  # how long to retry when the store is unavailable at the end
    requeue_exhausted: bool = False  # the caller requeues it if no process can be created: then it has no end


class Planner:
    """Plans from the settings and the capabilities of this machine; writes nothing."""

    def __init__(self, settings: RunnerSettings, pool: KeeperPool, base_env: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._pool = pool
        self._owners_dir = settings.paths.owners_dir
        self.base_env = dict(base_env) if base_env is not None else child_environment.default_base(os.environ)

    @property
    def keeper_patience(self) -> float:
        """How long a keeper may be silent before it is killed."""
        return self._settings.keeper_patience

    def log_path(self, command: Command) -> Path:
        """The path of a command's log."""
        return log_path_of(self._settings.paths, command)

    def order(self, job: Job, environment: Mapping[str, str], log_path: Path) -> LaunchOrder:
        """The order for the keeper; ``environment`` has the variables of the command's environment."""
        spec, limits, settings = job.spec, job.spec.effective_limits, self._settings
        return LaunchOrder(
            command_id=job.command.id,
            attempt=job.command.attempt,
            owner=owner_file(self._owners_dir, job.command.owner or ""),
            argv=[*spec.wrapper, *spec.argv],
            env=child_environment.command_variables(
                self.base_env, environment=environment, overrides=spec.env or {}, limits=limits
            ),
            cwd=job.cwd or resolve_cwd(Path(job.lease.path), spec.cwd),
            limits=plan_limits(limits, self._pool.capabilities, spec.require),
            log_path=log_path,
            kill_grace=settings.kill_grace,
            disk_reserve=settings.disk_reserve,
            tty=(job.terminal_size or _TERMINAL_SIZE) if spec.tty else None,
            stdin=spec.stdin,
            stdin_text=spec.stdin_text,
            relay=spec.relay,
            orphan_seconds=spec.orphan_seconds,
            pre_kill=spec.pre_kill,
            secrets=spec.secrets,
            containers=spec.containers,
        )


def resolve_cwd(workspace: Path, cwd: Path | None) -> Path:
    """The command's directory, which must lie in its workspace."""
    root = Path(os.path.realpath(workspace))
    if not root.is_dir():
        raise InvalidInputError(f"workspace {str(workspace)!r} is not a directory")
    if cwd is None:
        return root
    place = Path(os.path.realpath(root / cwd))  # not ``resolve``, which raises for a link to itself
    if not place.is_relative_to(root):
        raise InvalidInputError(f"cwd {str(cwd)!r} is outside the workspace {str(root)!r}: use a path inside it")
    if not place.is_dir():
        raise InvalidInputError(f"cwd {str(cwd)!r} is not a directory in the workspace {str(root)!r}")
    return place


def log_path_of(paths: RunnerPaths, command: Command) -> Path:
    """The absolute path of a command's log, which its readers open from any directory."""
    name = f"{command.log_name}-{command.id}.log"
    return paths.logs_dir.absolute().joinpath(check_name(str(command.session_id), what="session"), name)


def set_log_aside(log_path: Path) -> None:
    """Rename the log of a command of an earlier store, which has the same path."""
    suffix = f".{time.time_ns()}.old"
    log_path.rename(f"{log_path}{suffix}")
    with contextlib.suppress(FileNotFoundError):
        Path(index_path(log_path)).rename(f"{index_path(log_path)}{suffix}")
