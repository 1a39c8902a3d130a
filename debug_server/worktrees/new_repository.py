"""Creates a repository with one commit in a new folder, completely or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from debug_server.disk import remove_tree
from debug_server.errors import InvalidInputError
from debug_server.worktrees.git import GitPlace, require, run_git

_AUTHOR = ("-c", "user.name=debug-server", "-c", "user.email=debug-server@localhost.invalid")


def make_repository(path: Path, *, branch: str, files: Mapping[str, str]) -> bool:
    """True if it was created; False when ``path`` already exists."""
    if path.exists():
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise InvalidInputError(f"repository {path} cannot be created: {error.strerror}") from error
    try:
        _fill(draft, branch, files)
        draft.chmod(0o755)
        try:
            draft.rename(path)
        except OSError:  # another process was first
            return False
    finally:
        remove_tree(draft)
    return True


def _fill(draft: Path, branch: str, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).write_text(text, encoding="utf-8")
    require(run_git("init", "-q", "-b", branch, str(draft)), f"repository {draft} cannot be created")
    place = GitPlace(git_dir=draft / ".git", work_tree=draft)
    require(run_git("add", "--all", place=place), "the first files cannot be added")
    require(run_git(*_AUTHOR, "commit", "-q", "-m", "First commit", place=place), "the first commit cannot be created")
