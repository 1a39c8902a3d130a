"""A database belongs to one folder: a server with another one is refused before it touches anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from debug_server.app.server import check_folder
from debug_server.errors import ConfigurationError
from debug_server.store import MetadataStore


def test_a_database_has_one_folder(store: MetadataStore, tmp_path: Path) -> None:
    """The first one has it, also after a move; another is told what to do, and nothing of it is left there."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    check_folder(store, first)
    check_folder(store, first)
    with pytest.raises(ConfigurationError, match="belongs to a data folder other than") as refusal:
        check_folder(store, second)
    assert not list(second.iterdir())
    mark = (first / "folder").read_text().strip()
    assert f"write {mark} into {second / 'folder'}" in str(refusal.value)
    (second / "folder").write_text("another\n")
    with pytest.raises(ConfigurationError):
        check_folder(store, second)
    assert (second / "folder").read_text() == "another\n"
    moved = first.rename(tmp_path / "moved")
    check_folder(store, moved)


def test_a_mark_that_no_database_knows_is_claimed(store: MetadataStore, tmp_path: Path) -> None:
    """What a server leaves that was killed between its mark and its claim."""
    (tmp_path / "folder").write_text("cafe\n")
    check_folder(store, tmp_path)
    assert store.data_folder.claim("other") == "cafe"
