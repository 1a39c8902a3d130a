"""Repositories for the runner programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runners.run_program import commit, git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with one commit."""
    path = tmp_path / "kanban-pmo"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    commit(path, {"README.md": "# A repository\n"}, "first")
    return path
