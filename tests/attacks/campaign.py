"""The campaign: every case against a server run by root and one run by a plain user, a line for each."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.attacks.cases import CASES, clear
from tests.attacks.target import AttackSetup
from tests.other_users import shared_python

_USERS = {"root": 0, "user": 20001}
_ATTACKER = 20002
_NEED_ROOT = {"another-user": "become another user", "full-disk": "mount a small disk"}
_NEED_A_BOUND = {"no-more-processes": "root's processes are bounded by nothing"}


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; the status is 1 when an attack got through."""
    parser = argparse.ArgumentParser(prog="attacks", description="Attacks a running server and says what got through.")
    parser.add_argument("--short", action="store_true", help="fewer kills and shorter outages")
    parser.add_argument("--server", choices=["root", "user", "both"], default="both", help="who runs the server")
    parser.add_argument("cases", nargs="*", default=[], help=f"some of: {', '.join(CASES)} (default: all)")
    options = parser.parse_args(arguments)
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"unknown case {min(unknown)!r}: use some of {', '.join(CASES)}")
    with tempfile.TemporaryDirectory(prefix="debug-server-attacks-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        root.chmod(0o755)
        violations = _campaign(root, options)
    for text in violations:
        _say(f"VIOLATION {text}")
    _say(f"attacks: {'FAILED' if violations else 'passed: no attack got through'}")
    return int(bool(violations))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _campaign(root: Path, options: argparse.Namespace) -> list[str]:
    python = shared_python(root)
    violations = []
    for label, uid in _servers(options.server).items():
        for name in options.cases or CASES:
            if reason := _skipped(name, uid):
                _say(f"{name:<20} server={label:<5} skipped: {reason}")
                continue
            began = time.monotonic()
            found = _attack(root / f"{label}-{name}", python, uid, name, short=options.short)
            result = "held" if not found else f"{len(found)} violations"
            _say(f"{name:<20} server={label:<5} {result} ({time.monotonic() - began:.1f} s)")
            violations += [f"{name} (server={label}): {text}" for text in found]
    return violations


def _skipped(name: str, uid: int) -> str | None:
    if uid == 0 and name in _NEED_A_BOUND:
        return _NEED_A_BOUND[name]
    if os.geteuid() != 0 and name in _NEED_ROOT:
        return f"only root can {_NEED_ROOT[name]}"
    return None


def _servers(wanted: str) -> dict[str, int]:
    if os.geteuid() != 0:
        return {"user": os.geteuid()}
    return _USERS if wanted == "both" else {wanted: _USERS[wanted]}


def _attack(folder: Path, python: str, uid: int, name: str, *, short: bool) -> list[str]:
    folder.mkdir()
    folder.chmod(0o755)
    other = _ATTACKER if os.geteuid() == 0 else None
    setup = AttackSetup(root=folder, python=python, uid=uid, other=other, short=short)
    found: list[str] = []
    try:
        found.extend(CASES[name](setup))  # keeps what came before an exception
    except Exception as error:  # noqa: BLE001 - the boundary of one case: the others are still to be run
        where = traceback.extract_tb(error.__traceback__)[1]
        found.append(f"{type(error).__name__} at {where.name}:{where.lineno}: {error}")
    finally:
        clear(folder)
    return found
