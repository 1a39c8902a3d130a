"""The example repositories of a fresh ``repos.yml``, and the shipped configuration for a folder that has none."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path

from debug_server.disk import check_trusted
from debug_server.dispatch.configuration import Configuration
from debug_server.dispatch.folder import REPOS, RUNNERS
from debug_server.dispatch.repos_file import Repo
from debug_server.errors import ConfigurationError, DebugServerError
from debug_server.worktrees.new_repository import make_repository

_LOG = logging.getLogger(__name__)
_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = (_PACKAGE / "shipped", _PACKAGE.parent / "config")  # of an installed package; of a checkout
_EXTRA = {
    "governor": {"kanban/backlog/.gitkeep": "", "kanban/wip/.gitkeep": "", "kanban/done/.gitkeep": ""},
    "offline-workhorse": {"Modelfile": 'FROM scratch\nSYSTEM "You are a small local model."\n'},
}


def make_examples(configuration: Configuration) -> list[str]:
    """Make the example repositories whose path is missing, and say which paths of others are; returns those made."""
    made = []
    for repo in configuration.repos.repos.values():
        path = configuration.repos.place(repo)
        if path.is_dir():
            continue
        if not repo.example:
            _LOG.warning("repository_missing", extra={"repo": repo.name, "path": str(path)})
            continue
        try:
            if make_repository(path, branch=repo.branch, files=_files(repo)):
                made.append(repo.name)
        except DebugServerError as error:  # events for it will be skipped, and say so
            _LOG.warning("example_failed", extra={"repo": repo.name, "error": str(error)})
    return made


def _files(repo: Repo) -> dict[str, str]:
    readme = f"# {repo.name}\n\nAn example repository of debug-server: runners act here.\n"
    return {"README.md": readme, ".gitignore": ".env\n", **_EXTRA.get(repo.role, {})}


def ensure_configuration(folder: Path, owners: Collection[int] | None = None) -> bool:
    """Put the shipped files into a folder that has neither; True if they were.

    ConfigurationError when the folder is not trusted: others than the owners may write there.
    """
    if (folder / RUNNERS).exists() or (folder / REPOS).exists():
        return False
    source = next((place for place in _SHIPPED if (place / RUNNERS).is_file()), None)
    if source is None:
        raise ConfigurationError(f"{folder / RUNNERS} does not exist: write it, see docs/dispatch.md")
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        check_trusted(folder, owners)
        for name in (RUNNERS, REPOS):
            # Not through a link, dangling or not, that would have us write elsewhere.
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                file.write((source / name).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be filled: {error.strerror}") from error
    return True
