"""The hint about files that are Git LFS pointers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from debug_server.runner.lfs_pointers import lfs_hint

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 7\n"
ATTRIBUTES = "*.txt text\n*.bin filter=lfs diff=lfs merge=lfs -text\nmodels/** diff=lfs filter=lfs\n"


def make(folder: Path, files: dict[str, bytes], attributes: str = ATTRIBUTES) -> Path:
    """A workspace with these files."""
    for name, data in {".gitattributes": attributes.encode(), **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def test_pointers_are_named(tmp_path: Path) -> None:
    """Files that are pointers, in any folder; not those with their content."""
    hint = lfs_hint(make(tmp_path, {"a.bin": POINTER, "d/b.bin": POINTER, "real.bin": b"content", "note.txt": b"x"}))
    assert hint is not None
    assert hint.startswith("2 of the files are Git LFS pointers without their content: a.bin, d/b.bin; ")
    assert "`git lfs pull`" in hint


def test_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is named where it is missing, and not where it is there."""
    workspace, programs = make(tmp_path / "work", {"models/x": POINTER}), tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert "apt-get install git-lfs" in (lfs_hint(workspace) or "")
    (programs / "git-lfs").write_text("#!/bin/sh\n")
    (programs / "git-lfs").chmod(0o755)
    assert "install" not in (lfs_hint(workspace) or "install")


@pytest.mark.parametrize("attributes", ["", "# *.bin filter=lfs\n", "*.bin text\n", "*.bin filter=lfsx\n"])
def test_repositories_without_lfs(tmp_path: Path, attributes: str) -> None:
    """Without its attribute a file is what it is."""
    assert lfs_hint(make(tmp_path, {"a.bin": POINTER}, attributes)) is None


def test_what_a_holder_puts_there(tmp_path: Path) -> None:
    """Neither a pipe nor a link holds us up or leads out, and a long list is cut."""
    workspace = make(tmp_path, {f"{number}.bin": POINTER for number in range(8)})
    os.mkfifo(workspace / "pipe.bin")
    (workspace / "link.bin").symlink_to("0.bin")
    (workspace / "loop").symlink_to(".")
    assert "0.bin, 1.bin, 2.bin, 3.bin, 4.bin and 3 more" in (lfs_hint(workspace) or "")
    (workspace / ".gitattributes").unlink()
    os.mkfifo(workspace / ".gitattributes")
    assert lfs_hint(workspace) is None
