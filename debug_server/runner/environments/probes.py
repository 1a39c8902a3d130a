"""What programs say about themselves, asked once for each state of the program's file."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from debug_server.errors import ResourcesExhaustedError
from debug_server.runner.environments.processes import tool_environment

_PROBE_SECONDS = 20.0


class ProbeCache:
    """Answers of programs by path, device, inode, size and time of the file; shared between processes through a file.

    A replaced program has another identity and is asked again. Scripts are never remembered: what a shim leads to
    depends on more than its own file.
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
            return known[1]
        answer = _run(program, argv)
        if answer is not None and not is_script(program):
            self._remember(key, identity, answer)
        return answer

    def _load(self) -> dict[str, tuple[list[int], str]]:
        if self._answers is None:
            try:
                stored = json.loads(self._path.read_bytes())
                self._answers = {key: (list(value[0]), str(value[1])) for key, value in stored.items()}
            except (OSError, ValueError, TypeError, AttributeError, IndexError, KeyError):
                self._answers = {}
        return self._answers

    def _remember(self, key: str, identity: list[int], answer: str) -> None:
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


def _run(program: str, argv: Sequence[str]) -> str | None:
    try:
        process = subprocess.Popen(
            [program, *argv],
            env=tool_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        if (exhausted := ResourcesExhaustedError.of(error)) is not None:  # it may be there: another build would follow
            raise exhausted from error
        return None
    with process:
        try:
            said, _ = process.communicate(timeout=_PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # A program that somebody named may be anything: what it started goes with it, and nothing holds its pipe.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return said.decode("utf-8", "replace").strip() if process.returncode == 0 else None
