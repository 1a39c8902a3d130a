"""Lists the files of a repository: those that git tracks or would add; without git, all files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from runners.kit.git import open_repository
from runners.kit.tree import Tree, path_parts

SKIPPED_FOLDERS = {".git", ".venv", "node_modules", "__pycache__"}


def repository_files(tree: Tree, paths: Sequence[str] | None = None) -> Iterator[str]:
    """Sorted relative paths of regular files: those of ``paths``, or all; without links and ignored files."""
    wanted = sorted({"/".join(path_parts(path)) for path in paths}) if paths is not None else _all(tree)
    for path in wanted:
        full = tree.path / path
        if full.is_file() and not full.is_symlink():
            yield path


def _all(tree: Tree) -> list[str]:
    with open_repository(tree.path) as git:
        if git is not None:
            listed = git.must("ls-files", "-z", "--cached", "--others", "--exclude-standard")
            return sorted({path for path in listed.split("\0") if path})
    return sorted(_walk(tree))


def _walk(tree: Tree) -> Iterator[str]:
    for folder, folders, files in os.walk(tree.path):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        for name in files:
            yield str((Path(folder) / name).relative_to(tree.path))
