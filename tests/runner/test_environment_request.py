"""Requests for an environment that cannot be meant: each is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest, workspace_environment
from tests.runner.environment_support import hook


def test_a_misspelt_key_is_refused(tmp_path: Path) -> None:
    """A name that nearly means something is told apart from one that means nothing on purpose."""
    manager = EnvironmentManager(tmp_path / "envs")
    for name in ("pyhton", "Python", "python_version", "bulider", "hooks"):
        with pytest.raises(EnvironmentBuildError, match=f"metadata '{name}' is not known: did you mean"):
            manager.plan_fingerprint(EnvironmentRequest("x", metadata={name: "3.11"}))
    manager.plan_fingerprint(EnvironmentRequest("x", metadata={"variant": "a"}))


def test_a_colon_in_a_path_is_refused(tmp_path: Path) -> None:
    """It would end a name in PATH and PYTHONPATH in the middle: the error names the path."""
    manager = EnvironmentManager(tmp_path / "envs")
    handle = manager.ensure(hook("true", root=tmp_path))
    (tmp_path / "a:b").mkdir()
    with pytest.raises(EnvironmentBuildError, match="a:b"):
        workspace_environment(handle, tmp_path / "a:b")
