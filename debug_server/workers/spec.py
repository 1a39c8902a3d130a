"""The declaration of a worker, as the supervisor uses it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from debug_server.config.workers import WorkerConfig
from debug_server.errors import ConfigurationError
from debug_server.model import Limits, check_name

FORBIDDEN = frozenset({"PROXY_API_KEY", "PROXY_METRICS_TOKEN"})  # the gateway's secrets, which no worker needs
INSTANCE_VARIABLE = "DEBUG_SERVER_WORKER_INSTANCE"
_MARK = {"CODEX_WORKER_SUPERVISED": "true"}
_INSTANCE = "{instance}"  # exactly this text: other braces belong to the program
_LAST_SHELL_FD = 9  # the last descriptor that a POSIX shell can redirect


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeReadiness:
    """Ready after a handshake over its stdin and stdout."""

    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StdoutReadiness:
    """Ready when a line of its stdout says so; without ``line``, a JSON line as ``{"ready": true}``."""

    line: str | None = None


@dataclass(frozen=True, slots=True)
class NotifyReadiness:
    """Ready when it sends READY=1 to NOTIFY_SOCKET."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FdReadiness:
    """Ready when it writes a newline to a descriptor."""

    fd: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReadiness:
    """Ready when an address answers 2xx."""

    url: str
    interval: float = 0.2
    timeout: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecReadiness:
    """Ready when a program ends with status 0."""

    argv: Sequence[str]
    interval: float = 0.2
    timeout: float = 5.0


Readiness = HandshakeReadiness | StdoutReadiness | NotifyReadiness | FdReadiness | HttpReadiness | ExecReadiness


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTiming:
    """Timeouts and delays of its supervisor, in seconds."""

    backoff_initial: float = 0.5
    backoff_maximum: float = 5.0
    restart_max: int = 25
    restart_window: float = 600.0
    stable_uptime: float = 60.0
    startup_timeout: float = 8.0
    shutdown_grace: float = 5.0
    orphan_timeout: float = 60.0
    watchdog_interval: float | None = None
    watchdog_timeout: float = 5.0
    watchdog_failures: int = 3

    @classmethod
    def from_config(cls, config: WorkerConfig) -> WorkerTiming:
        """From declared settings, which are in milliseconds."""
        watchdog = config.watchdog_interval_ms
        return cls(
            backoff_initial=config.backoff_initial_ms / 1000,
            backoff_maximum=config.backoff_max_ms / 1000,
            restart_max=config.restart_max,
            restart_window=config.restart_window_ms / 1000,
            stable_uptime=config.stable_uptime_ms / 1000,
            startup_timeout=config.startup_timeout_ms / 1000,
            shutdown_grace=config.shutdown_grace_ms / 1000,
            orphan_timeout=config.orphan_timeout_ms / 1000,
            watchdog_interval=None if watchdog is None else watchdog / 1000,
            watchdog_timeout=config.probe_timeout_ms / 1000,
            watchdog_failures=config.watchdog_failures,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recycling:
    """When a healthy worker is replaced."""

    age: float | None = None  # seconds
    memory_bytes: int | None = None
    log_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One declared worker."""

    name: str
    argv: Sequence[str]
    readiness: Readiness
    cwd: Path = field(default_factory=Path.cwd)
    env: Mapping[str, str] = field(default_factory=dict)
    inherit: Sequence[str] = ()  # names of the server's variables that it inherits
    instances: int = 1
    limits: Limits = field(default_factory=Limits)
    timing: WorkerTiming = field(default_factory=WorkerTiming)
    recycling: Recycling = field(default_factory=Recycling)

    def __post_init__(self) -> None:
        check_name(self.name, what="worker name")
        if not self.argv or not self.argv[0]:
            raise ConfigurationError(f"worker {self.name}: argv is empty: name the program to run")
        if secret := sorted(FORBIDDEN & {*self.env, *self.inherit}):
            raise ConfigurationError(f"worker {self.name}: {secret[0]} is the server's own secret: leave it out")
        if isinstance(self.readiness, FdReadiness) and not 3 <= self.readiness.fd <= _LAST_SHELL_FD:
            raise ConfigurationError(f"worker {self.name}: fd = {self.readiness.fd} must be from 3 to {_LAST_SHELL_FD}")
        if self.instances > 1 and isinstance(self.readiness, HttpReadiness) and _INSTANCE not in self.readiness.url:
            raise ConfigurationError(
                f"worker {self.name}: url = {self.readiness.url!r} is one address for {self.instances} instances: "
                f"write {_INSTANCE} into url and argv where the number belongs (900{_INSTANCE}), or use instances = 1"
            )

    def for_instance(self, instance: int) -> WorkerSpec:
        """The declaration of one instance: with its number in argv, url and probe, and in a variable."""
        readiness, number = self.readiness, str(instance)
        match readiness:
            case HttpReadiness(url=url):
                readiness = replace(readiness, url=url.replace(_INSTANCE, number))
            case ExecReadiness(argv=argv):
                readiness = replace(readiness, argv=[word.replace(_INSTANCE, number) for word in argv])
        return replace(
            self,
            argv=[word.replace(_INSTANCE, number) for word in self.argv],
            readiness=readiness,
            env={**self.env, INSTANCE_VARIABLE: number},
            instances=1,
        )

    def environment(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Its variables, in addition to those of every command."""
        return {**{name: environ[name] for name in self.inherit if name in environ}, **self.env, **_MARK}

    def fingerprint(self, environ: Mapping[str, str] = os.environ) -> str:
        """A hash of everything that a running process depends on; reveals no value."""
        parts = [
            list(self.argv),
            str(self.cwd),
            self.environment(environ),
            repr(self.readiness),
            self.limits.requested(),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    @classmethod
    def from_config(cls, name: str, config: WorkerConfig) -> WorkerSpec:
        """From declared settings."""
        return cls(
            name=name,
            argv=config.argv,
            readiness=_readiness(name, config),
            cwd=(config.cwd or Path.cwd()).absolute(),
            env=config.env or {},
            inherit=config.inherit,
            instances=config.instances,
            limits=Limits(
                memory_bytes=config.memory, cpus=config.cpus, pids=config.pids, idle_seconds=config.idle_timeout
            ),
            timing=WorkerTiming.from_config(config),
            recycling=Recycling(
                age=config.recycle_age, memory_bytes=config.recycle_memory, log_bytes=config.recycle_log
            ),
        )


def _readiness(name: str, config: WorkerConfig) -> Readiness:
    interval, timeout = config.probe_interval_ms / 1000, config.probe_timeout_ms / 1000
    match config.readiness:
        case "handshake":
            return HandshakeReadiness(protocol=config.protocol)
        case "stdout":
            return StdoutReadiness(line=config.line)
        case "notify":
            return NotifyReadiness()
        case "fd":
            return FdReadiness(fd=config.fd)
        case "http" if config.url:
            return HttpReadiness(url=config.url, interval=interval, timeout=timeout)
        case "exec" if config.probe:
            return ExecReadiness(argv=config.probe, interval=interval, timeout=timeout)
    needed = "url" if config.readiness == "http" else "probe"
    raise ConfigurationError(f"worker {name}: readiness {config.readiness!r} needs {needed}")
