"""Checks the codex program: whether it exists, its version, and whether it has ``app-server``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from debug_server.runner.program_probe import ask_program, find_program

_SECONDS = 10.0
_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")


def check_codex(name: str, environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Check the codex program: runs it twice, with the worker's ``variables``, and blocks. Returns a row for probes."""
    found: dict[str, Any] = {"checked": True, "bin": name, "path": None, "version": None, "app_server_help": False}
    program = find_program(name, environ)
    if program is None:
        return {**found, "ok": False, "reason": f"{name!r} is not on the PATH: install codex, or set CODEX_BIN"}
    given = {key: value for key, value in environ.items() if key in ("PATH", "HOME", "LANG")} | dict(variables)
    version = ask_program([program, "--version"], environ=given, seconds=_SECONDS)
    number = _VERSION.search(version.text) if version.status == 0 else None
    helped = ask_program([program, "app-server", "--help"], environ=given, seconds=_SECONDS)
    found |= {"path": program, "version": number[0] if number else None, "app_server_help": helped.status == 0}
    if version.status != 0:
        return {**found, "ok": False, "reason": f"`{name} --version` failed: {version.text[:200]}"}
    if helped.status != 0:
        reason = f"`{name} app-server --help` failed: {helped.text[:200]}; this codex has no app-server"
        return {**found, "ok": False, "reason": reason}
    return {**found, "ok": True}
