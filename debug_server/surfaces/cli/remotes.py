"""Remotes as people write them, and the one repository that need not be named."""

from __future__ import annotations

import re
from pathlib import Path

from debug_server.client import calls
from debug_server.errors import InvalidInputError
from debug_server.messages import RepositoryReply
from debug_server.surfaces.cli.backend import Backend

_URL = re.compile(r"[a-z+]+://|[^/]+@[^/]+:")


def address(remote: str) -> str:
    """A URL as it is; a folder that is here by its full path."""
    return remote if _URL.match(remote) or not Path(remote).exists() else str(Path(remote).resolve())


def name_for(remote: str) -> str:
    """The last part of the remote, made a name."""
    last = re.split(r"[/:]", address(remote).rstrip("/"))[-1].removesuffix(".git")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-._")[:100]
    if not name:
        raise InvalidInputError(f"cannot derive a name from the remote {remote!r}: give one with --name")
    return name


def chosen_repository(backend: Backend, name: str | None) -> RepositoryReply:
    """The named repository, or the only one that there is."""
    if name is not None:
        return backend.send(calls.get_repository(name))
    known = backend.send(calls.list_repositories()).items
    if len(known) == 1:
        return known[0]
    if not known:
        raise InvalidInputError("no repository is registered: run `debug-server server init REMOTE` first")
    raise InvalidInputError(f"give --repository: {', '.join(row.name for row in known)} are registered")


def manifests_of(repository: RepositoryReply) -> list[str]:
    """What ``server init --manifest`` said that environments are built from."""
    found = repository.settings.get("manifests", [])
    return [str(item) for item in found] if isinstance(found, list) else []
