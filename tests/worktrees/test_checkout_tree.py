"""What removes a holder's files from a checkout touches nothing outside of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from debug_server.worktrees import checkout_tree
from tests.worktrees.places import make_remote


def _checkout(base: Path) -> Path:
    remote = make_remote(base / "tree")
    remote.commit({"a/f": "f\n", "b/c/f": "f\n", "top": "t\n"})
    (base / "like").mkdir(mode=0o755)
    return remote.path


def test_strip_leaves_what_the_index_names(tmp_path: Path) -> None:
    """Other entries go, folders get their usual rights back, also one that its owner may not list."""
    tree = _checkout(tmp_path)
    index = tmp_path / "index"
    shutil.copy(tree / ".git/index", index)
    (tree / "a/new").write_text("x")
    (tree / "junk/deep").mkdir(parents=True)
    (tree / "b/link").symlink_to(tmp_path)
    (tree / "b/c").chmod(0)
    checkout_tree.remove_untracked(tree, index, tmp_path / "like", shutil.rmtree)
    left = sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))
    assert left == ["a", "a/f", "b", "b/c", "b/c/f", "top"]
    assert (tree / "b/c").stat().st_mode == (tmp_path / "like").stat().st_mode


def test_strip_follows_no_link_that_takes_a_folder_s_place(tmp_path: Path) -> None:
    """A process that goes on in the tree swaps a folder for a link: nothing behind the link is removed or changed."""
    tree, outside = _checkout(tmp_path), tmp_path / "outside"
    (outside / "c").mkdir(parents=True)
    (outside / "precious").write_text("kept\n")
    outside.chmod(0o711)
    index = tmp_path / "index"
    shutil.copy(tree / ".git/index", index)

    def swap(junk: Path) -> None:
        shutil.rmtree(junk)
        for name in ("a", "b"):
            (tree / name).rename(tmp_path / f"{name}.away")
            (tree / name).symlink_to(outside)

    with pytest.raises(OSError, match=r"Too many levels|Not a directory"):
        checkout_tree.remove_untracked(tree, index, tmp_path / "like", swap)
    assert (outside / "precious").read_text() == "kept\n"
    assert outside.stat().st_mode & 0o777 == 0o711
    assert not (tree / ".git").exists()
