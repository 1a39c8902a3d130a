"""The settings of running commands on one machine, as ``config/runner.toml`` holds them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.config.declare import Derived, section, setting
from debug_server.config.kinds import PATH, TEXT, choice, number, size, whole
from debug_server.model.limits import MIN_MEMORY_BYTES, Limits


def _below_artifacts(name: str) -> Derived:
    return Derived(text=f"`{name}` in `paths.artifacts`", of=lambda paths: paths["artifacts"] / name)


def _seconds(sentence: str) -> Any:
    return setting(sentence, number(), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsConfig:
    """[paths]: where files go."""

    artifacts: Path = setting("The folder of everything that commands leave.", PATH, default=Path(".artifacts"))
    logs: Path = setting("Logs of commands.", PATH, default=_below_artifacts("logs"))
    environments: Path = setting("Shared environments.", PATH, default=_below_artifacts("envs"))
    patches: Path = setting("Patches, kept by hash.", PATH, default=_below_artifacts("patches"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """[runner]: how commands are run."""

    default_shell: str = setting("The shell for commands given as one text.", TEXT, default="/bin/bash")
    kill_grace: float = setting("Seconds between TERM and KILL.", number(least=0), default=1.0)
    containment: str = setting(
        "What holds a process tree together; `auto` takes the strongest that works here.",
        choice("auto", "cgroup", "pid-namespace", "session"),
        default="auto",
    )
    spare_keepers: int = setting("Keepers started ahead of need.", whole(least=0), default=2)
    max_concurrency: int = setting("Commands that run at the same time.", whole(least=1), default=8)
    max_pending: int = setting("Commands that may wait; more are refused.", whole(least=1), default=10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """[limits]: bounds on commands that ask for none of their own; left out means unbounded."""

    memory: int | None = setting(
        "Memory of the whole tree.", size(least=MIN_MEMORY_BYTES, least_text="4M"), default=None
    )
    cpus: float | None = setting("CPU quota, in cores.", number(), default=None)
    cpu_seconds: float | None = _seconds("CPU time of the whole tree.")
    pids: int | None = setting("Processes and threads at one time.", whole(least=1), default=None)
    open_files: int | None = setting("Open files of each process.", whole(least=1), default=None)
    file_size: int | None = setting("Size of each written file.", size(least=1, least_text="1"), default=None)
    output: int | None = setting("Bytes of stdout and stderr together.", size(least=1, least_text="1"), default=None)
    timeout: float | None = _seconds("Wall-clock seconds.")
    idle_timeout: float | None = _seconds("Seconds without output.")

    def to_limits(self) -> Limits:
        """The same bounds as the value that commands carry."""
        return Limits(
            memory_bytes=self.memory,
            cpus=self.cpus,
            cpu_seconds=self.cpu_seconds,
            pids=self.pids,
            open_files=self.open_files,
            file_size_bytes=self.file_size,
            output_bytes=self.output,
            wall_seconds=self.timeout,
            idle_seconds=self.idle_timeout,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """Everything in ``runner.toml``."""

    paths: PathsConfig = section(PathsConfig)
    runner: RunnerOptions = section(RunnerOptions)
    limits: LimitsConfig = section(LimitsConfig)
