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
from debug_server.runner.isolation import (
    Decision,
    SessionFolders,
    Surroundings,
    Wish,
    decide,
    is_requirement,
    kernel_plan,
    report,
    variables,
)
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.launch import LaunchOrder
from debug_server.runner.limits import LimitPlan, plan_limits
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
        spec, settings = job.spec, self._settings
        decision = self.isolation(spec, Path(job.lease.path))
        around = self._surroundings(job, environment)
        return LaunchOrder(
            command_id=job.command.id,
            attempt=job.command.attempt,
            owner=owner_file(self._owners_dir, job.command.owner or ""),
            argv=[*spec.wrapper, *spec.argv],
            env=child_environment.command_variables(
                self.base_env,
                environment={**environment, **variables(decision, around)},
                overrides=spec.env or {},
                limits=spec.effective_limits,
            ),
            cwd=job.cwd or resolve_cwd(Path(job.lease.path), spec.cwd),
            limits=self._limits(spec),
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
            folders=None if decision.level == "none" else around.folders,
            isolation={
                "plan": kernel_plan(decision, self._pool.capabilities, around),
                "report": report(decision, self._pool.capabilities),
            },
        )

    def check(self, spec: CommandSpec, workspace: Path | None) -> None:
        """UnmetRequirementError, or InvalidInputError, for what cannot be enforced here; see ``isolation``."""
        self._limits(spec)
        self.isolation(spec, workspace)

    def _limits(self, spec: CommandSpec) -> LimitPlan:
        about_limits = [name for name in spec.require if not is_requirement(name)]
        return plan_limits(spec.effective_limits, self._pool.capabilities, about_limits)

    def isolation(self, spec: CommandSpec, workspace: Path | None) -> Decision:
        """How a command is confined; ``workspace`` is None before one is leased for it."""
        defaults = self._settings.isolation
        wish = Wish(
            level=spec.isolation
            or (defaults.workspaces if workspace is None or self._is_ours(workspace) else defaults.elsewhere),
            network=spec.network or defaults.network,
            network_asked=spec.network is not None,
            require=[name for name in spec.require if is_requirement(name)],
        )
        return decide(wish, self._pool.capabilities, containers=spec.containers)

    def _is_ours(self, workspace: Path) -> bool:
        """Whether a folder is a workspace or a scratch folder, and not a user's own."""
        data = self._data_folder
        return any(workspace.is_relative_to(data / name) for name in ("worktrees", "scratch"))

    def _surroundings(self, job: Job, environment: Mapping[str, str]) -> Surroundings:
        workspace, data = Path(os.path.realpath(job.lease.path)), self._data_folder
        home = environment.get("VIRTUAL_ENV")
        paths = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *([home] if home else [])]
        shared = [path for path in map(Path, paths) if not path.is_relative_to(workspace)]
        if workspace.parent.parent == data / "worktrees":  # its history is in the repository's mirror
            mirror = data / "repos" / f"{workspace.parent.name}.bare"
            shared += [mirror / "objects", mirror.with_name(f"{mirror.name}.submodules")]
        return Surroundings(
            workspace=workspace,
            folders=SessionFolders(root=self._settings.paths.folders_dir.absolute() / str(job.command.session_id)),
            data_folder=data,
            read=[*shared, *map(Path, self._settings.isolation.read)],
            write=[Path(path) for path in self._settings.isolation.write],
            python=Path(home, "bin", "python") if home else None,
            env={**self.base_env, **environment},  # not the command's own: a caller could show itself any folder
        )

    @property
    def _data_folder(self) -> Path:
        return Path(os.path.realpath(self._settings.paths.artifacts_root))


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
