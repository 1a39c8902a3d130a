"""The docker executor: a hardened container, gone when its task is over however that ends."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from debug_server.config.tasks import TasksConfig
from debug_server.errors import InvalidInputError
from debug_server.tasks.executors.base import Plan, fits, passed_on, variables
from debug_server.tasks.models import RunnerSandbox, RunnerSubmit

CIDFILE = "cidfile"  # in the task's part of its session's metadata
PREFIX = "host-runner"
_PROGRAMS = ("docker", "podman")
_PASSED_ON = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY")
_PASSED_ON_TOO = ("CONTAINER_HOST", "XDG_RUNTIME_DIR", "HOME")
# What the client, podman's storage, the programs that either starts or the loader would read for itself on the host.
_CLIENTS_OWN = re.compile(
    r"(?i:(DOCKER|MOBY|COMPOSE|BUILDKIT|BUILDX|PODMAN|BUILDAH|CONTAINERS?|_CONTAINERS|STORAGE|REGISTRY|CNI|NETAVARK"
    r"|OTEL|LD|XDG|SSL|SSH|GPG|DBUS|SYSTEMD|LISTEN|MALLOC|BASH)_.*"
    r"|GO[A-Z]+|PYTHON.*|PERL.*|RUBY.*|NODE_(OPTIONS|PATH)|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH|TZDIR|TERMINFO.*"
    r"|HOSTALIASES|LOCALDOMAIN|RES_OPTIONS|NOTIFY_SOCKET|KUBECONFIG|GNUPGHOME|SSLKEYLOGFILE"
    r"|HOME|PATH|USER|TMP|TEMP|TMPDIR|ENV|IFS|SHELLOPTS|BASHOPTS|(HTTPS?|FTP|ALL|NO)_PROXY)"
)
_TMPFS = "/tmp:rw,noexec,nosuid,size=64m"


class DockerExecutor:
    """``docker run`` (or podman's) of the task's own image and command."""

    def __init__(self, config: TasksConfig, cid_dir: Path) -> None:
        self._config = config
        self._cid_dir = cid_dir.absolute()

    def plan(self, submit: RunnerSubmit) -> Plan:
        """The container's name is chosen here: whoever comes later can remove it by that."""
        assert submit.sandbox is not None
        name = f"{PREFIX}-{_safe(submit.task_id)}-{secrets.token_hex(4)}"
        cidfile = self._cid_dir / f"{name}.cid"
        self._cid_dir.mkdir(parents=True, exist_ok=True)
        program = self._program()
        given = {**variables(submit, prompt=True), **submit.sandbox.env}
        spoken = {key: value for key, value in given.items() if _CLIENTS_OWN.fullmatch(key)}
        quiet = {key: value for key, value in given.items() if key not in spoken}
        for key, value in submit.sandbox.env.items():
            fits(value, key, field=f"sandbox.env.{key}")
        connection = passed_on([*_PASSED_ON, *_PASSED_ON_TOO])
        # Not `docker stop`: a container that ignores TERM would outlive the hook.
        remove = ["/usr/bin/env", *(f"{key}={value}" for key, value in connection.items()), program, "rm", "-f", name]
        return Plan(
            executor="docker",
            argv=[program, "run", *self._flags(submit.sandbox, name, cidfile, _variables(quiet, spoken))],
            env={**quiet, **connection},
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


def _variables(quiet: Mapping[str, str], spoken: Mapping[str, str]) -> list[str]:
    """By name alone, since everybody can see a command line; but what would steer the client itself stays out of its
    environment."""
    words = [*quiet, *(f"{key}={value}" for key, value in spoken.items())]
    return [flag for word in words for flag in ("--env", word)]


def _mount(source: str, target: str, *, read_only: bool) -> str:
    for name, path in (("source", source), ("target", target)):
        if any(mark in path for mark in ',"\n'):
            raise InvalidInputError(
                f"sandbox.mounts: {name} {path!r} holds a comma, a quote or a line's end, which no mount can name",
                field="sandbox.mounts",
            )
    return f"type=bind,source={source},target={target}" + (",readonly" if read_only else "")


def _safe(task_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", task_id)[:64] or "task"
