"""Which files a repository has: what git knows or would add, or every file where there is no git."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from runners.kit.git import Git
from runners.kit.tree import Tree, steps

SKIPPED_FOLDERS = {".git", ".venv", "node_modules", "__pycache__"}


def repository_files(tree: Tree, paths: Sequence[str] | None = None) -> Iterator[str]:
    """Paths of regular files from the root, sorted: ``paths``, or all; links are left out, ignored files too."""
    wanted = sorted({"/".join(steps(path)) for path in paths}) if paths is not None else _all(tree)
    for path in wanted:
        full = tree.path / path
        if full.is_file() and not full.is_symlink():
            yield path


def _all(tree: Tree) -> list[str]:
    git = Git(tree.path)
    if git.here:
        listed = git.must("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        return sorted({path for path in listed.split("\0") if path})
    return sorted(_walk(tree))


def _walk(tree: Tree) -> Iterator[str]:
    for folder, folders, files in os.walk(tree.path):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        for name in files:
            yield str((Path(folder) / name).relative_to(tree.path))
