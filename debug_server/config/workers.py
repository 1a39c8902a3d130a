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


def _own(sentence: str, kind: Kind, default: Any = None) -> Any:
    """A setting without a variable: it belongs to one worker, and a variable would set it for all."""
    return setting(sentence, kind, default=default, variable="")


def _ms(sentence: str, default: int, variable: str, least: int = 1) -> Any:
    return setting(sentence, whole(least=least), default=default, variable=f"WORKER_{variable}")


_MEMORY = size(least=MIN_MEMORY_BYTES, least_text="4M")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """[workers.NAME]: one long-lived program. Environment variables apply to every worker."""

    argv: tuple[str, ...] = _own(
        "The program and its arguments; `{instance}` is the number of each, from 0.", TEXTS, ()
    )
    cwd: Path | None = setting(
        "The working directory of the worker; left out: the current directory.", PATH, default=None, variable=""
    )
    env: dict[str, str] | None = setting("Variables to set.", TABLE, default=None, variable="")
    inherit: tuple[str, ...] = _own(
        "Names of variables of the server that the worker gets too, besides PATH, HOME and the locale.", TEXTS, ()
    )
    instances: int = _own("The number of instances of the worker.", whole(least=1), 1)
    readiness: str = _own("How it says that it is ready.", choice(*READINESS_KINDS), "stdout")
    protocol: str = _own(
        'For `readiness = "handshake"`: the protocol of the handshake; `codex` is the one of the gateway.',
        TEXT,
        "codex",
    )
    line: str | None = _own(
        'For `readiness = "stdout"`: a string that the line contains; left out: a JSON line such as `{"ready": true}`.',
        TEXT,
    )
    fd: int = _own(
        'For `readiness = "fd"`: the descriptor that the worker writes a newline to, 3 to 9.', whole(least=3), 3
    )
    url: str | None = _own(
        'For `readiness = "http"`: the URL that answers 2xx when the worker is ready; may contain `{instance}`.', TEXT
    )
    probe: tuple[str, ...] = _own(
        'For `readiness = "exec"`: a program that exits with status 0 when the worker is ready.', TEXTS, ()
    )
    probe_interval_ms: int = _own(
        'For `readiness = "http"` and `"exec"`: milliseconds between two probes.', whole(least=10), 200
    )
    probe_timeout_ms: int = _own(
        'For `readiness = "http"` and `"exec"` and for the watchdog: milliseconds to wait for one answer.',
        whole(least=10),
        5000,
    )
    memory: int | None = _own("Memory of its whole tree, enforced.", _MEMORY)
    cpus: float | None = _own("CPU quota, in cores.", number())
    pids: int | None = _own("Processes and threads at one time.", whole(least=1))
    idle_timeout: float | None = _own("Seconds without output after which it is ended.", number())
    recycle_age: float | None = _own("Seconds after which it is replaced.", number())
    recycle_memory: int | None = _own("Memory in use above which it is replaced.", _MEMORY)
    recycle_log: int = _own("Bytes on stderr after which it is replaced.", size(least=4096, least_text="4K"), 16 << 20)
    watchdog_interval_ms: int | None = _own(
        "Milliseconds between two checks that the worker still answers; left out: no checks.", whole(least=10)
    )
    watchdog_failures: int = _own("Checks in a row that fail before it is replaced.", whole(least=1), 3)
    backoff_initial_ms: int = _ms("Milliseconds before the first restart.", 500, "BACKOFF_INITIAL_MS")
    backoff_max_ms: int = _ms("The longest delay before a restart, in milliseconds.", 5000, "BACKOFF_MAX_MS")
    restart_max: int = _ms(
        "Restarts within the window; after that the worker fails and waits for an operator.", 25, "RESTART_MAX", 0
    )
    restart_window_ms: int = _ms("The window of `restart_max`, in milliseconds.", 600_000, "RESTART_WINDOW_MS")
    stable_uptime_ms: int = _ms(
        "Milliseconds of readiness after which earlier failures are forgotten.", 60_000, "STABLE_UPTIME_MS"
    )
    startup_timeout_ms: int = _ms(
        "Milliseconds from the start of the worker until it must be ready.", 8000, "STARTUP_TIMEOUT_MS"
    )
    shutdown_grace_ms: int = _ms(
        "Milliseconds for running requests to finish, and then from TERM to KILL.", 5000, "SHUTDOWN_GRACE_MS", 0
    )
    orphan_timeout_ms: int = _ms(
        "Milliseconds after which a worker without a server is ended.", 60_000, "ORPHAN_TIMEOUT_MS"
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
    path: Path, environ: Mapping[str, str] | None = None, *, owners: Collection[int] | None = None
) -> dict[str, Loaded[WorkerConfig]]:
    """Every worker that a file declares, by name; ``owners`` as in ``load``."""
    tables = read_table(path, owners)
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
