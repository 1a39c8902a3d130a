"""The settings of host tasks: the variables that their users have always set, and the same keys in a file."""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.config.declare import setting
from debug_server.config.kinds import FLAG, TEXT, choice, number, whole

_SANDBOX = "HOST_RUNNER_DOCKER_SANDBOX_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksConfig:
    """How host tasks are run."""

    executor: str = setting(
        "What runs tasks outside the container sandbox.",
        choice("mock", "shell", "codex"),
        default="mock",
        variable="HOST_RUNNER_EXECUTOR",
    )
    cmd_template: str | None = setting(
        "The shell executor's command; `{prompt}`, `{task_id}` and `{run_id}` stand for their values.",
        TEXT,
        default=None,
        variable="HOST_RUNNER_CMD_TEMPLATE",
    )
    codex_bin: str = setting("The codex executor's program.", TEXT, default="codex", variable="HOST_RUNNER_CODEX_BIN")
    codex_args: str = setting(
        "Its arguments after `exec`, quoted as in a shell.", TEXT, default="", variable="HOST_RUNNER_CODEX_ARGS"
    )
    cleanup_worktree: bool = setting(
        "Whether the worktree of a task is removed at its end.",
        FLAG,
        default=True,
        variable="HOST_RUNNER_CLEANUP_WORKTREE",
    )
    callback_allow: str | None = setting(
        "Where callbacks may go: names, addresses, networks, `localhost` (every loopback address) and `public`, parted "
        "by commas; left out: `public`, which is everything but this machine, its link and metadata services.",
        TEXT,
        default=None,
        variable="HOST_RUNNER_CALLBACK_ALLOW",
    )
    callback_uid: int | None = setting(
        "The user, by number, who receives callbacks on this machine; left out: only the server's own user and root.",
        whole(least=0),
        default=None,
        variable="HOST_RUNNER_CALLBACK_UID",
    )
    docker_bin: str | None = setting(
        "The container program; left out: docker or podman, whichever is found.",
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
        "A container's processes.", whole(least=1), default=256, variable=f"{_SANDBOX}PIDS_LIMIT"
    )
    sandbox_memory: str = setting("A container's memory.", TEXT, default="2g", variable=f"{_SANDBOX}MEMORY")
    sandbox_cpus: float = setting("A container's cores.", number(), default=2.0, variable=f"{_SANDBOX}CPUS")
