"""Files that FileWrite makes never lie outside the repository, and signed hooks are believed only with their secret."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from debug_server.dispatch.file_writes import merge_lines, set_env_key, write_file
from debug_server.errors import InvalidInputError


def test_writing_and_merging(tmp_path: Path) -> None:
    """Whole files, missing lines, one variable in its place."""
    assert write_file(tmp_path, "a/b.txt", "x\n", merge=False).read_text() == "x\n"
    assert write_file(tmp_path, "a/b.txt", "x\ny\n", merge=True).read_text() == "x\ny\n"
    merge_lines(tmp_path, ["*.log", "*.tmp"])
    assert merge_lines(tmp_path, ["*.tmp", "dist/"]).read_text() == "*.log\n*.tmp\ndist/\n"
    set_env_key(tmp_path, "A", "1")
    set_env_key(tmp_path, "B", "2")
    assert set_env_key(tmp_path, "A", "3").read_text() == "A=3\nB=2\n"
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", ".", ".git/config", "a/.GIT/hooks/x", "a\0b"])
def test_paths_that_lead_out_are_refused(tmp_path: Path, path: str) -> None:
    """Nothing is written."""
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(InvalidInputError):
        write_file(root, path, "x", merge=False)
    assert list(tmp_path.rglob("*")) == [root]


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link to a folder or to a file outside is refused or replaced, its target untouched."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "file").write_text("theirs")
    (root / "folder").symlink_to(outside)
    (root / ".env").symlink_to(outside / "file")
    with pytest.raises(InvalidInputError):
        write_file(root, "folder/new", "x", merge=False)
    with pytest.raises(InvalidInputError):
        set_env_key(root, "A", "1")
    assert (outside / "file").read_text() == "theirs" and not (outside / "new").exists()


@pytest.mark.parametrize(("key", "value"), [("A B", "x"), ("1A", "x"), ("A", "x\nB=1"), ("A=", "x"), ("", "x")])
def test_variables_that_would_be_more_than_one(tmp_path: Path, key: str, value: str) -> None:
    """A key is a name and a value is one line."""
    with pytest.raises(InvalidInputError):
        set_env_key(tmp_path, key, value)


def test_a_value_stays_one_variable(tmp_path: Path) -> None:
    """Only a line end ends a line: what else Python would split at stays in its value when another key is set."""
    set_env_key(tmp_path, "A", "x\x0bB=1\u2028C=2")
    assert set_env_key(tmp_path, "D", "3").read_bytes().decode() == "A=x\x0bB=1\u2028C=2\nD=3\n"
