"""Creates the example repositories that ``repos.yml`` names, and the shipped configuration files."""

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
from debug_server.service import LOCAL, Service

_LOG = logging.getLogger(__name__)
_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = (_PACKAGE / "shipped", _PACKAGE.parent / "config")  # of an installed package; of a checkout
_EXTRA = {
    "governor": {"kanban/backlog/.gitkeep": "", "kanban/wip/.gitkeep": "", "kanban/done/.gitkeep": ""},
    "offline-workhorse": {"Modelfile": 'FROM scratch\nSYSTEM "You are a small local model."\n'},
}


def create_examples(service: Service, configuration: Configuration) -> list[str]:
    """Create the example repositories whose path is missing and log which other paths are missing; returns names."""
    created = []
    for repo in configuration.repos.repos.values():
        path = configuration.repos.path_of(repo)
        if path.is_dir():
            continue
        if not repo.example:
            _LOG.warning("repository_missing", extra={"repo": repo.name, "path": str(path)})
            continue
        try:
            if service.repositories.create_directory(LOCAL, path, branch=repo.branch, files=_files(repo)):
                created.append(repo.name)
        except DebugServerError as error:  # its events are skipped with a reason
            _LOG.warning("example_failed", extra={"repo": repo.name, "error": str(error)})
    return created


def _files(repo: Repo) -> dict[str, str]:
    readme = f"# {repo.name}\n\nAn example repository of debug-server: runners work here.\n"
    return {"README.md": readme, ".gitignore": ".env\n", **_EXTRA.get(repo.role, {})}


def ensure_configuration(folder: Path, trusted_uids: Collection[int] | None = None) -> bool:
    """Copy the shipped files into a folder that has neither of them; True if they were copied.

    ConfigurationError if the folder is not trusted: other users than the trusted ones can write there.
    """
    if (folder / RUNNERS).exists() or (folder / REPOS).exists():
        return False
    source = next((place for place in _SHIPPED if (place / RUNNERS).is_file()), None)
    if source is None:
        raise ConfigurationError(f"{folder / RUNNERS} does not exist: create it as docs/dispatch.md shows")
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        check_trusted(folder, trusted_uids)
        for name in (RUNNERS, REPOS):
            # O_EXCL: not through a symbolic link, which could lead elsewhere.
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                file.write((source / name).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}") from error
    return True
