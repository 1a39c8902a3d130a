"""Caches the output of probed programs (``--version``), by the state of the program's file."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from debug_server.runner.environments.build_context import tool_environment
from debug_server.runner.program_probe import ask_program

_PROBE_SECONDS = 20.0
_WRONG_USE = 2  # the status of a program that does not know its arguments


class ProbeCache:
    """Probe results by path, device, inode, size and mtime of the program; shared between processes in a file.

    A replaced program is probed again. Scripts are not cached: what a shim starts depends on more than its own file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[str, tuple[list[int], str]] | None = None

    def ask(self, program: str, argv: Sequence[str]) -> str | None:
        """What ``program argv...`` prints, or None when it cannot be run."""
        identity = _identity(program)
        if identity is None:
            return None
        key = "\0".join((program, *argv))
        known = self._load().get(key)
        if known is not None and known[0] == identity:
            return known[1] or None
        found = ask_program((program, *argv), environ=tool_environment(), seconds=_PROBE_SECONDS)
        answer = found.text if found.status == 0 else None
        # Python 2 does not know ``-I`` and says so with status 2; other failures may pass.
        lasting = answer or ("" if found.status == _WRONG_USE else None)
        if lasting is not None and not is_script(program):
            self._record(key, identity, lasting)
        return answer

    def _load(self) -> dict[str, tuple[list[int], str]]:
        if self._answers is None:
            try:
                stored = json.loads(self._path.read_bytes())
                self._answers = {key: (list(value[0]), str(value[1])) for key, value in stored.items()}
            except (OSError, ValueError, TypeError, AttributeError, IndexError, KeyError):
                self._answers = {}
        return self._answers

    def _record(self, key: str, identity: list[int], answer: str) -> None:
        self._answers = None  # another process may have added to the file
        answers = {**self._load(), key: (identity, answer)}
        self._answers = answers
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):  # only a cache: a full disk must not fail the probe
            draft.write_text(json.dumps(answers), "utf-8")
            draft.replace(self._path)
        draft.unlink(missing_ok=True)


def is_script(program: str) -> bool:
    """Whether the file starts with ``#!``."""
    try:
        with Path(program).open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _identity(program: str) -> list[int] | None:
    try:
        stat = Path(program).stat()
    except OSError:
        return None
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns]
