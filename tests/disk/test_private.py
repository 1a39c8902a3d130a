"""Folders of ours are closed to others, new ones and those of earlier versions."""

from __future__ import annotations

import stat
from pathlib import Path

from debug_server.runner.settings import RunnerPaths
from tests.worktrees.places import open_pool, small_remote


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_of_earlier_versions_are_closed(tmp_path: Path) -> None:
    """What was made with 0755 is 0700 after a start; a folder that was named keeps its mode, ours in it do not."""
    for name in (".artifacts", "named"):
        root = tmp_path / name
        for folder in (root, root / "repos", root / "worktrees", root / "envs", root / "scratch"):
            folder.mkdir()
            folder.chmod(0o755)
        RunnerPaths.from_root(root).prepare()
        assert {mode(folder) for folder in root.iterdir() if folder.is_dir()} == {0o700}
    assert (mode(tmp_path / ".artifacts"), mode(tmp_path / "named")) == (0o700, 0o755)


def test_new_folders_are_closed(tmp_path: Path) -> None:
    """Workspaces and mirrors are made in folders that only we may enter; the folder above keeps its mode."""
    remote = small_remote(tmp_path / "remote")
    above = mode(tmp_path)
    pool = open_pool(tmp_path, remote, "pool")
    pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None).release()
    made = (tmp_path / "repos", tmp_path / "worktrees", tmp_path / "worktrees" / "repo")
    assert [mode(path) for path in made] == [0o700] * 3 and mode(tmp_path) == above
