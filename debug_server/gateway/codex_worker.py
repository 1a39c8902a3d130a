"""The codex worker as the gateway's settings declare it: its command line, its variables and its folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from debug_server.config.gateway import CodexConfig, GatewayConfig
from debug_server.config.workers import load_worker
from debug_server.disk import check_trusted
from debug_server.errors import ConfigurationError
from debug_server.workers import (
    PROTOCOL,
    CodexOptions,
    HandshakeReadiness,
    TurnRequest,
    Workers,
    WorkerSpec,
    WorkerTiming,
    codex_handshake,
)

NAME = "codex"
# Added to the variables of every worker: how to reach a provider, and with which key. Never a key of the gateway.
INHERITED = (
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "RUST_LOG",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)


def declare_worker(
    config: CodexConfig,
    workers: Workers,
    environ: Mapping[str, str],
    *,
    home: Path,
    workdir: Path,
    trace: Callable[[str, Mapping[str, Any], int], None] | None,
) -> None:
    """Add the codex protocol and, unless one of its name is declared, the codex worker."""
    workers.handshakes[PROTOCOL] = codex_handshake(
        CodexOptions(
            handshake_seconds=config.handshake_timeout_ms / 1000,
            request_seconds=config.request_timeout_ms / 1000,
            trace=trace,
        )
    )
    if workers.declares(NAME):
        return
    worker_config = load_worker(NAME, {}, source="variables", environ=environ).value
    workers.add(
        WorkerSpec(
            name=NAME,
            argv=worker_argv(config),
            cwd=workdir,
            env=worker_variables(home),
            inherit=INHERITED,
            readiness=HandshakeReadiness(protocol=PROTOCOL),
            timing=WorkerTiming.from_config(worker_config),
        )
    )


def worker_argv(config: CodexConfig) -> list[str]:
    """``codex app-server`` and its overrides, each value in TOML."""
    overrides = {
        "model": config.model,
        "preferred_auth_method": "chatgpt",
        "sandbox_mode": config.sandbox,
        **({"model_provider": config.model_provider} if config.model_provider else {}),
    }
    given = [part for name, value in overrides.items() for part in ("-c", f"{name}={json.dumps(value)}")]
    return [config.bin, "app-server", *given]


def prepare_folders(config: CodexConfig, trusted_uids: Collection[int] | None = None) -> tuple[Path, Path]:
    """Create the worker's home and its working directory and return them; ConfigurationError if that fails.

    The home has settings that name programs, and a login: only trusted users may be able to write there.
    """
    home = config.home.absolute()
    workdir = (config.workdir or home / "workspace").absolute()
    for path in (home, workdir):
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"cannot create the folder {path} ({error.strerror}): set CODEX_HOME") from error
    check_trusted(home, trusted_uids)
    return home, workdir


def worker_variables(home: Path) -> dict[str, str]:
    """The worker's own variables."""
    return {"CODEX_HOME": str(home), "CODEX_WORKER_SUPERVISED": "true"}


def base_turn(config: GatewayConfig, workdir: Path) -> TurnRequest:
    """What all turns have in common."""
    return TurnRequest(cwd=str(workdir), approval_policy=config.codex.approval, sandbox=config.codex.sandbox)
