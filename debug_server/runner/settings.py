"""The runner's folders and settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.config import (
    EnvironmentsConfig,
    HistoryConfig,
    IsolationConfig,
    RunnerConfig,
    ServerConfig,
    WorkspacesConfig,
    load_runner,
    make_data_folder,
)
from debug_server.config.places import DATA_FOLDER
from debug_server.config.runner import DEFAULT_SHELL
from debug_server.disk import check_trusted, tighten, trusted_users
from debug_server.model import Limits

# Our subfolders. ``prepare`` removes the permissions of other users: earlier versions used the umask.
_WORKSPACES_PER_TOKEN = 64
_FOLDERS = (
    *("repos", "worktrees", "envs", "scratch", "logs", "patches", "keepers", "owners", "locks", "collected"),
    *("containers", "data", "private"),
)
_FILES = ("data/metadata.db", "data/metadata.db-wal", "data/seal.key")


@dataclass(frozen=True, slots=True)
class RunnerPaths:
    """The runner's folders."""

    artifacts_root: Path
    logs_dir: Path
    environments_dir: Path
    patches_dir: Path
    trusted_uids: frozenset[int] = field(
        default_factory=trusted_users, kw_only=True, compare=False
    )  # whose folders are trusted

    @classmethod
    def from_root(cls, root: Path) -> RunnerPaths:
        """The usual layout below one folder."""
        root = Path(root)
        return cls(root, root / "logs", root / "envs", root / "patches")

    def prepare(self) -> None:
        """Create the data folder, private and ignored by git.

        ConfigurationError when another user could have written to it or to a part of it.
        """
        make_data_folder(self.artifacts_root, self.trusted_uids)
        elsewhere = (self.logs_dir, self.environments_dir, self.patches_dir)
        for path in (*elsewhere, *(self.artifacts_root / name for name in (*_FOLDERS, *_FILES))):
            if os.path.lexists(path):
                check_trusted(path, self.trusted_uids)
        if self.artifacts_root.name == DATA_FOLDER:  # a configured folder may contain other data too
            tighten(self.artifacts_root)
        for name in _FOLDERS:
            tighten(self.artifacts_root / name)

    @property
    def keepers_dir(self) -> Path:
        """One folder for each running command: its handle, its socket and finally its exit record."""
        return self.artifacts_root / "keepers"

    @property
    def folders_dir(self) -> Path:
        """The folders of isolated commands that take the place of the home folder and /tmp, by session."""
        return self.artifacts_root / "private"

    @property
    def owners_dir(self) -> Path:
        """One locked file for each live process that runs commands."""
        return self.artifacts_root / "owners"


def shell_command(shell: str, text: str) -> list[str]:
    """The argv for a command given as one string, the same for every surface.

    ``shell`` is ``runner.default_shell``; if its default is not installed, /bin/sh is used.
    """
    if shell == DEFAULT_SHELL and not Path(shell).exists():
        shell = "/bin/sh"
    return [shell, "-c", text]


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Everything in ``config/runner.toml``, as the runner uses it."""

    paths: RunnerPaths
    default_shell: str = DEFAULT_SHELL
    kill_grace: float = field(default=1.0, kw_only=True)
    containment: str = field(default="auto", kw_only=True)
    keeper_patience: float = field(default=20.0, kw_only=True)
    spare_keepers: int = field(default=2, kw_only=True)
    max_concurrency: int = field(default=8, kw_only=True)
    max_pending: int = field(default=10_000, kw_only=True)
    limits: Limits = field(default_factory=Limits, kw_only=True)
    workspaces: WorkspacesConfig = field(default_factory=WorkspacesConfig, kw_only=True)
    environments: EnvironmentsConfig = field(default_factory=EnvironmentsConfig, kw_only=True)
    history: HistoryConfig = field(default_factory=HistoryConfig, kw_only=True)
    isolation: IsolationConfig = field(default_factory=IsolationConfig, kw_only=True)
    server: ServerConfig = field(default_factory=ServerConfig, kw_only=True)
    disk_reserve: int = field(default=256 << 20, kw_only=True)  # bytes that logs leave free on their disk

    @property
    def workspaces_per_token(self) -> int:
        """How many workspaces a token may have that is no admin's and has no quota of sessions."""
        most = self.workspaces.max_worktrees
        return self.server.workspaces_per_token or (_WORKSPACES_PER_TOKEN if most is None else max(1, most // 2))

    @classmethod
    def from_toml(cls, path: Path) -> RunnerSettings:
        """Read a configuration file; an unknown key or a wrong value is a ConfigurationError that names it.

        Relative paths of ``config/runner.toml`` begin at the folder that holds ``config/``, those of another file in
        its own folder.
        """
        runner_config = load_runner(path, environ=_without_settings(os.environ))
        return cls.from_config(runner_config.loaded.value, trusted_uids=runner_config.location.trusted_uids)

    @classmethod
    def from_config(cls, config: RunnerConfig, *, trusted_uids: frozenset[int] | None = None) -> RunnerSettings:
        """From loaded settings; ``trusted_uids``: whose folders are trusted."""
        paths, runner = config.paths, config.runner
        return cls(
            RunnerPaths(
                paths.artifacts,
                paths.logs,
                paths.environments,
                paths.patches,
                trusted_uids=trusted_uids or trusted_users(),
            ),
            runner.default_shell,
            kill_grace=runner.kill_grace,
            containment=runner.containment,
            keeper_patience=runner.keeper_patience,
            spare_keepers=runner.spare_keepers,
            max_concurrency=runner.max_concurrency,
            max_pending=runner.max_pending,
            disk_reserve=runner.disk_reserve,
            limits=config.limits.to_limits(),
            workspaces=config.workspaces,
            environments=config.environments,
            history=config.history,
            isolation=config.isolation,
            server=config.server,
        )


def _without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables do not override a file that is read explicitly."""
    return {name: value for name, value in environ.items() if not name.startswith("DEBUG_SERVER_")}
