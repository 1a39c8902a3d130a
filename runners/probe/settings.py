"""The probe's settings: from the environment, overridden by the command line."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runners.kit.errors import JobError
from runners.kit.text import checked_name

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """The settings of one probe."""

    host: str
    port: int  # 0: any free port
    governor_port: int
    snapshots: Path
    log_level: str
    interval: float  # seconds between syncs of all known repositories; 0: only on request
    repositories: Mapping[str, Path]
    token: str | None = None  # for the governor, if it runs as another user


def probe_settings(arguments: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> ProbeSettings:
    """The settings from the command line and the environment; JobError names a wrong value."""
    environ = os.environ if environ is None else environ
    given = _parser(environ).parse_args(arguments)
    if given.host not in LOOPBACK:
        # The protocol has no authentication: everybody who can connect can write.
        raise JobError(
            f"PROBE_HOST {given.host!r} is not one of {', '.join(LOOPBACK)}; a probe listens on loopback only"
        )
    level = str(given.log_level).upper()
    if level not in logging.getLevelNamesMapping():
        raise JobError(f"LOG_LEVEL {given.log_level!r} is not one of DEBUG, INFO, WARNING, ERROR")
    return ProbeSettings(
        host=given.host,
        port=_number("PROBE_GRPC_PORT", given.port, 65535),
        governor_port=_number("GOVERNOR_GRPC_PORT", given.governor_port, 65535),
        snapshots=Path(given.snapshots),
        log_level=level,
        interval=_number("SYNC_INTERVAL", given.interval, 86_400 * 365),
        repositories=dict(_repository(item) for item in given.repo),
        token=environ.get("DEBUG_SERVER_TOKEN") or None,
    )


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runners.probe_server", description="Serves ProbeSync.")
    parser.add_argument("--repo", action="append", default=[], metavar="NAME=PATH", help="a repository to sync")
    for option, variable, default, text in (
        ("--host", "PROBE_HOST", "127.0.0.1", "where to listen; loopback only"),
        ("--port", "PROBE_GRPC_PORT", "50052", "0: any free port"),
        (
            "--governor-port",
            "GOVERNOR_GRPC_PORT",
            "50051",
            "where repositories that --repo does not name are looked up",
        ),
        ("--snapshots", "SNAPSHOT_DIR", ".artifacts/snapshots", "where copies are kept"),
        ("--log-level", "LOG_LEVEL", "INFO", ""),
        ("--interval", "SYNC_INTERVAL", "300", "seconds between syncs; 0: only on request"),
    ):
        parser.add_argument(option, default=environ.get(variable) or default, help=f"{text} ({variable}, {default})")
    return parser


def _number(what: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= most):
        raise JobError(f"{what} {text!r} is not a whole number from 0 to {most}")
    return int(text)


def _repository(item: str) -> tuple[str, Path]:
    key, _, path = item.partition("=")
    if not path:
        raise JobError(f"--repo {item!r} is not NAME=PATH")
    return checked_name(key, "repository"), Path(path).resolve()
