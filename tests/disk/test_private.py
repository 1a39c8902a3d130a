"""Folders of ours are closed to others, new ones and those of earlier versions."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from debug_server.app import Local
from debug_server.errors import ConfigurationError
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from tests.worktrees.places import open_pool, small_remote

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


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


@as_root
@pytest.mark.parametrize(
    "part", ["above", "above/data folder", "above/data folder/data", "above/data folder/data/seal.key"]
)
def test_a_data_folder_that_another_user_can_fill_is_refused(tmp_path: Path, part: str) -> None:
    """The folder, those above it, each part of it, and its key; the line says whose it is."""
    root = tmp_path / "above" / "data folder"
    (root / "data").mkdir(parents=True)
    (root / "data" / "seal.key").write_text("key")
    RunnerPaths.from_root(root).prepare()
    os.chown(tmp_path / part, OTHER, OTHER)
    with pytest.raises(
        ConfigurationError, match=rf"is not used: .*belongs to another user \(uid {OTHER}\); use a path of"
    ):
        RunnerPaths.from_root(root).prepare()
    RunnerPaths(root, root / "logs", root / "envs", root / "patches", trusted_uids=frozenset({0, OTHER})).prepare()


def test_a_data_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """Closing it silently would keep what they have put there."""
    for name in (".artifacts", "named"):
        root = tmp_path / name
        root.mkdir()
        root.chmod(0o777)
        with pytest.raises(ConfigurationError, match=f"{root} is not used: other users may write to it .*chmod go-w"):
            RunnerPaths.from_root(root).prepare()
        assert list(root.iterdir()) == []


@as_root
def test_a_database_elsewhere_must_be_trusted(tmp_path: Path) -> None:
    """Whoever can exchange it makes themselves an admin."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, OTHER, OTHER)
    settings = RunnerSettings(RunnerPaths.from_root(tmp_path / "data"))
    with Local(settings, f"sqlite:///{theirs}/x.db") as local, pytest.raises(ConfigurationError, match="another user"):
        _ = local.store
