"""The codex worker as the gateway's settings declare it: its command line, its variables, and who its program is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from debug_server.config.gateway import CodexConfig, GatewayConfig
from debug_server.disk import check_trusted
from debug_server.errors import ConfigurationError
from debug_server.runner.program_probe import ask_program, find_program
from debug_server.workers.codex import PROTOCOL
from debug_server.workers.codex_turn import TurnRequest
from debug_server.workers.spec import HandshakeReadiness, WorkerSpec, WorkerTiming

NAME = "codex"
# Beside what every child gets: how to reach a provider, and with which key. Never a key of the gateway's own.
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
_ASK_SECONDS = 10.0
_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")


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


def worker_spec(config: CodexConfig, timing: WorkerTiming, owners: Collection[int] | None = None) -> WorkerSpec:
    """Its declaration, for the supervisor; makes its folders."""
    home, workdir = prepare_folders(config, owners)
    return WorkerSpec(
        name=NAME,
        argv=worker_argv(config),
        cwd=workdir,
        env=worker_variables(home),
        inherit=INHERITED,
        readiness=HandshakeReadiness(protocol=PROTOCOL),
        timing=timing,
    )


def prepare_folders(config: CodexConfig, owners: Collection[int] | None = None) -> tuple[Path, Path]:
    """Its own folder and where it works, both made; ConfigurationError where that cannot be.

    Its folder holds settings that name programs, and a login: others than the owners must not have written there.
    """
    home = config.home.absolute()
    workdir = (config.workdir or home / "workspace").absolute()
    for path in (home, workdir):
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"the folder {path} cannot be made ({error.strerror}): set CODEX_HOME") from error
    check_trusted(home, owners)
    return home, workdir


def worker_variables(home: Path) -> dict[str, str]:
    """What it is told by its environment."""
    return {"CODEX_HOME": str(home), "CODEX_WORKER_SUPERVISED": "true"}


def base_turn(config: GatewayConfig, workdir: Path) -> TurnRequest:
    """What every turn has in common."""
    return TurnRequest(cwd=str(workdir), approval_policy=config.codex.approval, sandbox=config.codex.sandbox)


def diagnose(config: CodexConfig, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Whether the program is there, its version, and whether it has ``app-server``; asks it twice, and blocks."""
    found: dict[str, Any] = {
        "checked": True,
        "bin": config.bin,
        "path": None,
        "version": None,
        "app_server_help": False,
    }
    program = find_program(config.bin, environ)
    if program is None:
        return {**found, "ok": False, "reason": f"{config.bin!r} is not on the PATH: install codex, or set CODEX_BIN"}
    given = {name: value for name, value in environ.items() if name in ("PATH", "HOME", "LANG")}
    given |= worker_variables(config.home.absolute())
    version = ask_program([program, "--version"], environ=given, seconds=_ASK_SECONDS)
    number = _VERSION.search(version.text) if version.status == 0 else None
    helped = ask_program([program, "app-server", "--help"], environ=given, seconds=_ASK_SECONDS)
    found |= {"path": program, "version": number[0] if number else None, "app_server_help": helped.status == 0}
    if version.status != 0:
        return {**found, "ok": False, "reason": f"`{config.bin} --version` failed: {version.text[:200]}"}
    if helped.status != 0:
        reason = f"`{config.bin} app-server --help` failed: {helped.text[:200]}; this codex has no app-server"
        return {**found, "ok": False, "reason": reason}
    return {**found, "ok": True}
