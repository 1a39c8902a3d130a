"""The settings of running commands on one machine, as ``config/runner.toml`` holds them."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

from debug_server.config.declare import Derived, section, setting
from debug_server.config.kinds import FLAG, LIST, PATH, TEXT, Kind, choice, number, size, whole
from debug_server.config.server import ServerConfig
from debug_server.model.isolation import LEVELS, NETWORKS, Level, Network
from debug_server.model.limits import LIMITS, MAX_LIMIT_VALUE, Limit, Limits, Unit, size_text

DEFAULT_SHELL = "/bin/bash"
_DAY = 86400.0
_A_SIZE = size(minimum=1, minimum_text="1")


def _below_artifacts(name: str) -> Derived:
    return Derived(text=f"`{name}` in `paths.artifacts`", of=lambda paths: paths["artifacts"] / name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsConfig:
    """[paths]: where files go."""

    artifacts: Path = setting(
        "The data folder: logs, workspaces, environments and artifacts.",
        PATH,
        default=Derived(text="[found](install.md#where-data-is-stored)", of=lambda _: Path(".artifacts")),
    )
    logs: Path = setting("Logs of commands.", PATH, default=_below_artifacts("logs"))
    environments: Path = setting("Shared environments.", PATH, default=_below_artifacts("envs"))
    patches: Path = setting("Patches, stored by hash.", PATH, default=_below_artifacts("patches"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """[runner]: how commands are run."""

    default_shell: str = setting(
        "The shell for commands that are given as one line (`SHELL -c LINE`). Without /bin/bash, default: /bin/sh.",
        TEXT,
        default=DEFAULT_SHELL,
    )
    kill_grace: float = setting("Seconds between TERM and KILL.", number(minimum=0), default=1.0)
    containment: str = setting(
        "How process trees are contained; `auto` uses the strongest mechanism that works on this machine.",
        choice("auto", "cgroup", "pid-namespace", "session"),
        default="auto",
    )
    keeper_patience: float = setting(
        "Seconds after which a keeper that does not answer, for example when its command must end, is killed.",
        number(),
        default=20.0,
    )
    spare_keepers: int = setting("Idle keepers that are kept ready.", whole(minimum=0), default=2)
    max_concurrency: int = setting("Commands that may run at the same time.", whole(minimum=1), default=8)
    disk_reserve: int = setting(
        "Disk space that logs must leave free; never more than 1% of the disk.",
        size(minimum=0, minimum_text="0"),
        default=256 << 20,
    )
    max_pending: int = setting("Commands that may wait; more are refused.", whole(minimum=1), default=10_000)


def _kind_of(limit: Limit) -> Kind:
    kind = _kind_of_unit(limit)

    def check(value: Any) -> Any:
        checked = kind.check(value)
        if limit.why_invalid(checked) is not None:
            raise ValueError(value)
        return checked

    expected = (
        kind.expected
        if limit.maximum == MAX_LIMIT_VALUE
        else f"{kind.expected}, at most {limit.text_of(limit.maximum)}"
    )
    return Kind(expected=expected, check=check, read=kind.read)


def _kind_of_unit(limit: Limit) -> Kind:
    minimum = 1 if limit.minimum is None else int(limit.minimum)
    if limit.unit is Unit.BYTES:
        return size(minimum=minimum, minimum_text=size_text(minimum))
    return whole(minimum=minimum) if limit.unit.is_whole else number(minimum=limit.minimum)


_LimitSettings: Any = make_dataclass(
    "_LimitSettings",
    [(limit.setting, Any, setting(limit.description, _kind_of(limit), default=None)) for limit in LIMITS.values()],
    frozen=True,
    kw_only=True,
)


class LimitsConfig(_LimitSettings):  # type: ignore[misc]  # its fields are made from the table of limits
    """[limits]: default limits of commands; a limit that is not set is not applied."""

    def to_limits(self) -> Limits:
        """The same bounds as the value that commands carry."""
        return Limits(**{limit.name: getattr(self, limit.setting) for limit in LIMITS.values()})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspacesConfig:
    """[workspaces]: for each repository; `repo add --setting` overrides the first seven for one repository."""

    backend: str = setting(
        "How workspaces are made; `auto` uses overlay if a test mount works, else pool.",
        choice("auto", "overlay", "pool"),
        default="auto",
    )
    max_worktrees: int | None = setting(
        "Maximum number of workspaces; without one, as many as the disk has space for.", whole(minimum=1), default=None
    )
    lease_ttl_seconds: float = setting(
        "Seconds after which a lease expires if it is not renewed.", number(), default=1800.0
    )
    fetch_timeout: float = setting("Maximum seconds for one fetch.", number(), default=600.0)
    max_fetch_bytes: int | None = setting("Maximum size of each file that a fetch writes.", _A_SIZE, default=None)
    max_tree_bytes: int | None = setting("Maximum total size of the files of one commit.", _A_SIZE, default=None)
    submodules: bool = setting("Whether submodules are checked out.", FLAG, default=False)
    acquire_timeout: float = setting("Maximum seconds to wait for a free workspace.", number(minimum=0), default=30.0)
    idle_seconds: float = setting(
        "Seconds after which unused workspaces and trees are removed.", number(), default=7 * _DAY
    )
    budget: int | None = setting(
        "Disk space for a repository's trees and idle workspaces; the least recently used are removed first.",
        _A_SIZE,
        default=20 << 30,
    )
    refresh_seconds: float = setting("Seconds between periodic fetches of mirrors.", number(), default=3600.0)
    repack_seconds: float = setting("Seconds between repacks of mirrors.", number(), default=_DAY)
    trusted_repositories: tuple[str, ...] = setting(
        "Repositories of other users that are trusted: paths (with everything below them), user names or uids.",
        LIST,
        default=(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentsConfig:
    """[environments]: the shared environments."""

    build_timeout: float = setting("Maximum seconds for one build.", number(), default=1800.0)
    idle_seconds: float = setting("Seconds after which unused environments are removed.", number(), default=30 * _DAY)
    budget: int | None = setting(
        "Disk space for all environments; the least recently used are removed first.", _A_SIZE, default=20 << 30
    )
    verify_seconds: float = setting(
        "Seconds between checks of every file of an environment.", number(), default=7 * _DAY
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryConfig:
    """[history]: how long closed sessions are kept, with their commands, logs and artifacts."""

    keep_seconds: float | None = setting(
        "Seconds after which a closed session is removed. Left out: never.", number(), default=None
    )
    keep_commands: int | None = setting(
        "Number of the newest commands that are kept; a session that was closed before them is removed. "
        "Left out: all of them.",
        whole(minimum=1),
        default=None,
    )
    patch_budget: int | None = setting(
        "Disk space for stored patches; beyond it those of closed sessions are removed, the oldest first.",
        _A_SIZE,
        default=1 << 30,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationConfig:
    """[isolation]: how commands are confined that do not say it themselves."""

    workspaces: Level = setting(
        "Level for commands in workspaces of repositories and in scratch folders.",
        choice(*LEVELS),
        default="namespace",
    )
    elsewhere: Level = setting(
        "Level for commands in folders of users: runners, tasks, workers and plain `run`.",
        choice(*LEVELS),
        default="none",
    )
    network: Network = setting("Network of isolated commands.", choice(*NETWORKS), default="open")
    read: tuple[str, ...] = setting("Further folders and files that isolated commands may read.", LIST, default=())
    write: tuple[str, ...] = setting("Further folders that isolated commands may change.", LIST, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """Everything in ``runner.toml``."""

    paths: PathsConfig = section(PathsConfig)
    runner: RunnerOptions = section(RunnerOptions)
    limits: LimitsConfig = section(LimitsConfig)
    workspaces: WorkspacesConfig = section(WorkspacesConfig)
    environments: EnvironmentsConfig = section(EnvironmentsConfig)
    history: HistoryConfig = section(HistoryConfig)
    isolation: IsolationConfig = section(IsolationConfig)
    server: ServerConfig = section(ServerConfig)
