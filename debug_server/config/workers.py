"""The settings of supervised workers, as ``config/workers.toml`` holds them: one table for each, by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.config.declare import setting
from debug_server.config.kinds import PATH, TABLE, TEXT, TEXTS, Kind, choice, number, size, whole
from debug_server.config.load import Loaded, base_of, load, read_table
from debug_server.errors import ConfigurationError, InvalidInputError
from debug_server.model import check_name
from debug_server.model.limits import MIN_MEMORY_BYTES

READINESS_KINDS = ("handshake", "stdout", "notify", "fd", "http", "exec")


def _own(description: str, kind: Kind, default: Any = None) -> Any:
    """A setting without a variable, because a variable would apply to every worker."""
    return setting(description, kind, default=default, variable="")


def _ms(description: str, default: int, variable: str, minimum: int = 1) -> Any:
    return setting(description, whole(minimum=minimum), default=default, variable=f"WORKER_{variable}")


_MEMORY = size(minimum=MIN_MEMORY_BYTES, minimum_text="4M")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """[workers.NAME]: one long-lived program. Variables apply to every worker."""

    argv: tuple[str, ...] = _own(
        "The program and its arguments; `{instance}` is replaced by the instance number, from 0.", TEXTS, ()
    )
    cwd: Path | None = setting("The working directory; default: the current one.", PATH, default=None, variable="")
    env: dict[str, str] | None = setting("Variables to set.", TABLE, default=None, variable="")
    inherit: tuple[str, ...] = _own("Variables of the server to pass on, besides PATH, HOME and locale.", TEXTS, ())
    instances: int = _own("Number of instances.", whole(minimum=1), 1)
    readiness: str = _own("How readiness is detected.", choice(*READINESS_KINDS), "stdout")
    protocol: str = _own("For `handshake`: the protocol; the gateway registers `codex`.", TEXT, "codex")
    line: str | None = _own("For `stdout`: text in the line that means ready; default: a ready JSON line.", TEXT)
    fd: int = _own("For `fd`: the descriptor on which it writes a newline, 3 to 9.", whole(minimum=3), 3)
    url: str | None = _own("For `http`: a URL that answers 2xx when it is ready; `{instance}` as in argv.", TEXT)
    probe: tuple[str, ...] = _own("For `exec`: a program that exits with 0 when it is ready.", TEXTS, ())
    probe_interval_ms: int = _own("For `http` and `exec`: milliseconds between probes.", whole(minimum=10), 200)
    probe_timeout_ms: int = _own("For `http`, `exec` and the watchdog: timeout of a probe.", whole(minimum=10), 5000)
    memory: int | None = _own("Memory limit of the process tree.", _MEMORY)
    cpus: float | None = _own("CPU quota, in cores.", number())
    pids: int | None = _own("Processes and threads at one time.", whole(minimum=1))
    idle_timeout: float | None = _own("Seconds without output after which it is stopped.", number())
    recycle_age: float | None = _own("Age in seconds at which the process is replaced.", number())
    recycle_memory: int | None = _own("Memory in use above which it is replaced.", _MEMORY)
    recycle_log: int = _own(
        "Bytes of stderr output after which the process is replaced.", size(minimum=4096, minimum_text="4K"), 16 << 20
    )
    watchdog_interval_ms: int | None = _own("Milliseconds between checks that it still answers.", whole(minimum=10))
    watchdog_failures: int = _own("Consecutive failed checks before it is replaced.", whole(minimum=1), 3)
    backoff_initial_ms: int = _ms("Milliseconds before the first restart.", 500, "BACKOFF_INITIAL_MS")
    backoff_max_ms: int = _ms("Maximum milliseconds before a restart.", 5000, "BACKOFF_MAX_MS")
    restart_max: int = _ms(
        "Maximum restarts within `restart_window_ms`; then the worker is not restarted again.", 25, "RESTART_MAX", 0
    )
    restart_window_ms: int = _ms("Milliseconds in which restarts are counted.", 600_000, "RESTART_WINDOW_MS")
    stable_uptime_ms: int = _ms("Milliseconds of readiness that clear the failures.", 60_000, "STABLE_UPTIME_MS")
    startup_timeout_ms: int = _ms("Maximum milliseconds from start to ready.", 8000, "STARTUP_TIMEOUT_MS")
    shutdown_grace_ms: int = _ms(
        "Milliseconds to finish work, and then again from TERM to KILL.", 5000, "SHUTDOWN_GRACE_MS", 0
    )
    orphan_timeout_ms: int = _ms(
        "Milliseconds without a server after which the worker is stopped.", 60_000, "ORPHAN_TIMEOUT_MS"
    )


def load_worker(
    name: str,
    table: Mapping[str, Any],
    *,
    source: str,
    environ: Mapping[str, str] | None = None,
    base: Path | None = None,
) -> Loaded[WorkerConfig]:
    """One worker's settings from its table and the variables; relative paths of the table begin at ``base``."""
    check_name(name, what="worker name")
    return load(WorkerConfig, tables=[(f"{source}: workers.{name}", table)], environ=environ, base=base)


def load_workers(
    path: Path, environ: Mapping[str, str] | None = None, *, trusted_uids: Collection[int] | None = None
) -> dict[str, Loaded[WorkerConfig]]:
    """Every worker that a file declares, by name; ``trusted_uids`` as in ``load``."""
    tables = read_table(path, trusted_uids)
    if unknown := sorted(set(tables) - {"workers"}):
        raise ConfigurationError(f"{path}: unknown key {unknown[0]!r}: declare workers as [workers.NAME]")
    found = {}
    for name, table in tables.get("workers", {}).items():
        if not isinstance(table, Mapping):
            raise ConfigurationError(f"{path}: workers.{name} = {table!r} must be a table: [workers.{name}]")
        try:
            found[name] = load_worker(name, table, source=str(path), environ=environ, base=base_of(path))
        except ConfigurationError:
            raise
        except InvalidInputError as error:
            raise ConfigurationError(f"{path}: {error}") from error
    return found
