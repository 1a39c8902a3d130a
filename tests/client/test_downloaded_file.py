"""A download never writes to, nor changes the mode of, a file that others put a link to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from debug_server.client.downloaded_file import writing
from debug_server.disk import kernel
from debug_server.errors import InvalidInputError


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A private file elsewhere."""
    path = tmp_path / "precious"
    path.write_text("mine")
    path.chmod(0o600)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the file is to be written, and where others may write too."""
    path = tmp_path / "open"
    path.mkdir(mode=0o777)
    return path


def untouched(precious: Path) -> bool:
    """Whether neither its content nor its mode changed."""
    return (precious.read_text(), precious.stat().st_mode & 0o777) == ("mine", 0o600)


@pytest.mark.parametrize("replace", [True, False])
def test_a_draft_that_is_exchanged_for_a_link(folder: Path, precious: Path, *, replace: bool) -> None:
    """While the bytes come, the folder's owner puts a link at every name in it: what it leads to stays as it was."""
    with writing(folder / "report.txt", replace=replace) as file:
        file.write(b"chosen by others")
        drafts = list(folder.iterdir())
        assert drafts, "there is a draft"
        for draft in drafts:
            draft.unlink()
            draft.symlink_to(precious)
    assert untouched(precious)


@pytest.mark.parametrize("end", ["precious", "nowhere"])
@pytest.mark.parametrize("library", [True, False], ids=["renameat2", "link"])
def test_nothing_is_replaced(
    folder: Path, precious: Path, end: str, monkeypatch: pytest.MonkeyPatch, *, library: bool
) -> None:
    """A link that comes after every check is an error; nothing is written through it, and no draft stays."""
    if not library:
        monkeypatch.setattr(kernel, "_libc", object())
    target = folder / "report.txt"
    with pytest.raises(InvalidInputError, match="exists already"), writing(target, replace=False) as file:
        file.write(b"chosen by others")
        target.symlink_to(precious.with_name(end))
    assert untouched(precious) and not precious.with_name("nowhere").exists()
    assert list(folder.iterdir()) == [target] and target.is_symlink()
    target.unlink()
    with writing(target, replace=False) as file:
        file.write(b"whole")
    assert (list(folder.iterdir()), target.read_bytes()) == ([target], b"whole")


def test_a_link_at_a_named_target_is_replaced(folder: Path, precious: Path) -> None:
    """It is not followed, and the new file has the mode of any new file."""
    target = folder / "report.txt"
    target.symlink_to(precious)
    mask = os.umask(0o027)
    try:
        with writing(target, replace=True) as file:
            file.write(b"whole")
    finally:
        os.umask(mask)
    assert untouched(precious) and not target.is_symlink()
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"whole", 0o640)


def test_a_folder_that_is_exchanged(folder: Path, tmp_path: Path) -> None:
    """The file goes to the folder that was there at the beginning, not to one that a link at its place leads to."""
    (tmp_path / "private").mkdir()
    with writing(folder / "report.txt", replace=True) as file:
        folder.rename(tmp_path / "away")
        folder.symlink_to("private")
        file.write(b"whole")
    assert (tmp_path / "away" / "report.txt").read_bytes() == b"whole" and not any((tmp_path / "private").iterdir())


def test_a_failure_leaves_what_was_there(folder: Path) -> None:
    """A download that breaks off, and one that the disk refuses, leave the old file and no draft."""
    target = folder / "report.txt"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), writing(target, replace=True):
        raise KeyboardInterrupt
    with pytest.raises(InvalidInputError, match="No space"), writing(target, replace=True):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert (list(folder.iterdir()), target.read_bytes()) == ([target], b"old")
