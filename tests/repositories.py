"""Git repositories for tests that only need something to check out."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.home import plain_git


def make_repository(path: Path, files: Mapping[str, str] | None = None) -> Path:
    """A git repository with one commit on branch main; by default with ``a.txt``, which says hello."""
    path.mkdir(parents=True)
    for name, text in (files or {"a.txt": "hello\n"}).items():
        (path / name).write_text(text)
    author = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(["git", *arguments], cwd=path, env=plain_git() | author, check=True)
    return path
