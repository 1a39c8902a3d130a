"""The settings of host tasks, with the established HOST_RUNNER_ variables, and as keys of ``tasks.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.config.declare import setting
from debug_server.config.kinds import ANY_TEXT, FLAG, TEXT, choice, number, whole

_SANDBOX = "HOST_RUNNER_DOCKER_SANDBOX_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksConfig:
    """How host tasks are run."""

    executor: str = setting(
        "The executor of tasks that do not run in a container.",
        choice("mock", "shell", "codex"),
        default="mock",
        variable="HOST_RUNNER_EXECUTOR",
    )
    cmd_template: str | None = setting(
        "The shell executor's command; `{prompt}`, `{task_id}` and `{run_id}` are replaced.",
        TEXT,
        default=None,
        variable="HOST_RUNNER_CMD_TEMPLATE",
    )
    codex_bin: str = setting("The codex executor's program.", TEXT, default="codex", variable="HOST_RUNNER_CODEX_BIN")
    codex_args: str = setting(
        "Arguments of the codex program after `exec`, quoted as in a shell.",
        ANY_TEXT,
        default="",
        variable="HOST_RUNNER_CODEX_ARGS",
    )
    cleanup_worktree: bool = setting(
        "Whether the worktree of a task is removed at its end.",
        FLAG,
        default=True,
        variable="HOST_RUNNER_CLEANUP_WORKTREE",
    )
    callback_allow: str | None = setting(
        "Allowed callback targets, separated by commas: names, addresses, networks, `localhost` (all loopback "
        "addresses), `public` (all but this machine, link-local and metadata addresses). Default: `public`.",
        TEXT,
        default=None,
        variable="HOST_RUNNER_CALLBACK_ALLOW",
    )
    callback_uid: int | None = setting(
        "The uid of another user who may receive callbacks on this machine; the server's own user and root always may.",
        whole(minimum=0),
        default=None,
        variable="HOST_RUNNER_CALLBACK_UID",
    )
    docker_bin: str | None = setting(
        "The container program; default: docker or podman, whichever is found.",
        TEXT,
        default=None,
        variable="HOST_RUNNER_DOCKER_BIN",
    )
    sandbox_read_only_rootfs: bool = setting(
        "Whether a container's root is read-only.", FLAG, default=True, variable=f"{_SANDBOX}READ_ONLY_ROOTFS"
    )
    sandbox_drop_caps: bool = setting(
        "Whether a container has no capabilities.", FLAG, default=True, variable=f"{_SANDBOX}DROP_CAPS"
    )
    sandbox_network: str = setting("A container's network.", TEXT, default="none", variable=f"{_SANDBOX}NETWORK")
    sandbox_pids_limit: int = setting(
        "Maximum number of processes in a container.", whole(minimum=1), default=256, variable=f"{_SANDBOX}PIDS_LIMIT"
    )
    sandbox_memory: str = setting("Memory limit of a container.", TEXT, default="2g", variable=f"{_SANDBOX}MEMORY")
    sandbox_cpus: float = setting("CPU cores of a container.", number(), default=2.0, variable=f"{_SANDBOX}CPUS")
