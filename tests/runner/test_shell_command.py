"""Commands given as one text: one rule says which shell runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from debug_server.runner import settings
from debug_server.runner.settings import shell_command


def test_the_configured_shell_runs_a_text() -> None:
    """Whatever is configured is taken as it is, also when it does not exist: that is an error to tell."""
    assert shell_command("/nowhere/zsh", "a; b") == ["/nowhere/zsh", "-c", "a; b"]


def test_without_bash_the_default_is_sh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the default has a stand-in."""
    shell = tmp_path / "bash"
    monkeypatch.setattr(settings, "DEFAULT_SHELL", str(shell))
    assert shell_command(str(shell), "true") == ["/bin/sh", "-c", "true"]
    shell.touch()
    assert shell_command(str(shell), "true") == [str(shell), "-c", "true"]
