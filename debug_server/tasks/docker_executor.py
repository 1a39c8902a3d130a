"""The docker executor: a hardened container that is removed when its task is over."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from debug_server.config.tasks import TasksConfig
from debug_server.errors import InvalidInputError
from debug_server.messages.tasks import RunnerSandbox, RunnerSubmit
from debug_server.tasks.task_command import TaskCommand, checked_value, inherited, task_variables

CIDFILE = "cidfile"  # key of the file with the container's id in the session's metadata
PREFIX = "host-runner"
_PROGRAMS = ("docker", "podman")
_DOCKER_VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY")
_PODMAN_VARIABLES = ("CONTAINER_HOST", "XDG_RUNTIME_DIR", "HOME")
# Variables that the client, podman's storage, their helper programs or the loader read on the host.
_READ_BY_CLIENT = re.compile(
    r"(?i:(DOCKER|MOBY|COMPOSE|BUILDKIT|BUILDX|PODMAN|BUILDAH|CONTAINERS?|_CONTAINERS|STORAGE|REGISTRY|CNI|NETAVARK"
    r"|OTEL|LD|XDG|SSL|SSH|GPG|DBUS|SYSTEMD|LISTEN|MALLOC|BASH)_.*"
    r"|GO[A-Z]+|PYTHON.*|PERL.*|RUBY.*|NODE_(OPTIONS|PATH)|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH|TZDIR|TERMINFO.*"
    r"|HOSTALIASES|LOCALDOMAIN|RES_OPTIONS|NOTIFY_SOCKET|KUBECONFIG|GNUPGHOME|SSLKEYLOGFILE"
    r"|HOME|PATH|USER|TMP|TEMP|TMPDIR|ENV|IFS|SHELLOPTS|BASHOPTS|(HTTPS?|FTP|ALL|NO)_PROXY)"
)
_TMPFS = "/tmp:rw,noexec,nosuid,size=64m"


class DockerExecutor:
    """``docker run`` or ``podman run`` of the task's image and command."""

    def __init__(self, config: TasksConfig, containers_dir: Path) -> None:
        self._config = config
        self._containers_dir = containers_dir.absolute()

    def command(self, submit: RunnerSubmit) -> TaskCommand:
        """The container's name is chosen here, so that the container can be removed by name."""
        assert submit.sandbox is not None
        name = f"{PREFIX}-{_safe(submit.task_id)}-{secrets.token_hex(4)}"
        cidfile = self._containers_dir / f"{name}.cid"
        self._containers_dir.mkdir(parents=True, exist_ok=True)
        program = self._program()
        given = {**task_variables(submit, prompt=True), **submit.sandbox.env}
        visible = {key: value for key, value in given.items() if _READ_BY_CLIENT.fullmatch(key)}
        hidden = {key: value for key, value in given.items() if key not in visible}
        for key, value in submit.sandbox.env.items():
            checked_value(value, key, field=f"sandbox.env.{key}")
        connection = inherited([*_DOCKER_VARIABLES, *_PODMAN_VARIABLES])
        # Not `docker stop`: if the container ignores SIGTERM, it takes longer than the hook may.
        remove = ["/usr/bin/env", *(f"{key}={value}" for key, value in connection.items()), program, "rm", "-f", name]
        return TaskCommand(
            executor="docker",
            argv=[program, "run", *self._flags(submit.sandbox, name, cidfile, _variables(hidden, visible))],
            env={**hidden, **connection},
            pre_kill=remove,
            containers=True,
            after=tuple(remove),
            metadata={CIDFILE: str(cidfile)},
        )

    def _program(self) -> str:
        wanted = (self._config.docker_bin,) if self._config.docker_bin else _PROGRAMS
        return next((found for name in wanted if (found := shutil.which(name))), wanted[0])

    def _flags(self, sandbox: RunnerSandbox, name: str, cidfile: Path, given: list[str]) -> list[str]:
        config = self._config
        flags = ["--rm", "--name", name, "--cidfile", str(cidfile), "-w", sandbox.workdir]
        if config.sandbox_read_only_rootfs:
            flags += ["--read-only", "--tmpfs", _TMPFS]
        if config.sandbox_drop_caps:
            flags += ["--cap-drop", "ALL"]
        flags += ["--security-opt", "no-new-privileges:true", "--network", config.sandbox_network]
        flags += ["--pids-limit", str(config.sandbox_pids_limit), "--memory", config.sandbox_memory]
        flags += ["--cpus", str(config.sandbox_cpus)]
        for mount in sandbox.mounts:
            flags += ["--mount", _mount(mount.source, mount.target, read_only=mount.read_only)]
        return [*flags, *given, sandbox.image, *sandbox.command]


def _variables(hidden: Mapping[str, str], visible: Mapping[str, str]) -> list[str]:
    """Hidden values by name only, because every user can see a command line; visible ones with their value, because the
    client would read them from its own environment."""
    words = [*hidden, *(f"{key}={value}" for key, value in visible.items())]
    return [flag for word in words for flag in ("--env", word)]


def _mount(source: str, target: str, *, read_only: bool) -> str:
    for name, path in (("source", source), ("target", target)):
        if any(mark in path for mark in ',"\n'):
            raise InvalidInputError(
                f"sandbox.mounts: {name} {path!r} contains a comma, a quote or a line end, which a mount cannot name",
                field="sandbox.mounts",
            )
    return f"type=bind,source={source},target={target}" + (",readonly" if read_only else "")


def _safe(task_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", task_id)[:64] or "task"
