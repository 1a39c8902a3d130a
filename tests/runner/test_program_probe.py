"""Programs that are asked a short question."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from debug_server.errors import ResourcesExhaustedError
from debug_server.runner.environments.probes import ProbeCache


def test_a_program_that_cannot_be_asked_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process is left a builder or interpreter is there all the same: nothing else is chosen in its place."""

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(ResourcesExhaustedError):
        ProbeCache(tmp_path / "probes.json").ask(sys.executable, ["--version"])
