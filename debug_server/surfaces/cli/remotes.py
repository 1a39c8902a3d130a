"""Resolves remotes, names and the default repository of a command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.errors import InvalidInputError
from debug_server.messages import OPERATIONS, RepositoryReply
from debug_server.service import Caller
from debug_server.surfaces.cli.backend import Backend

Repository = Annotated[
    str | None, typer.Option("--repo", "--repository", metavar="NAME", help="the repository; default: the only one")
]
RepositoryName = Annotated[
    str | None, typer.Option("--repo", "--repository", metavar="NAME", help="only those of this repository")
]
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/]+:")  # also scp's user@host:path


def remote_for(backend: Backend, remote: str) -> str:
    """A relative path as an absolute one, if the server is on this machine, too; any other remote unchanged."""
    if _URL.match(remote) or remote.startswith(("/", "~")):
        return remote
    if not backend.is_here:
        raise InvalidInputError(
            f"{remote!r} is a path on this machine, which the server at {backend.place} cannot read: give a git URL or "
            "an absolute path on the server's machine"
        )
    return str(Path(remote).resolve())


def name_for(remote: str) -> str:
    """A repository name, derived from the last part of the remote."""
    path = remote if _URL.match(remote) else str(Path(remote).resolve())
    last = re.split(r"[/:]", path.rstrip("/"))[-1].removesuffix(".git")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-._")[:100]
    if not name:
        raise InvalidInputError(f"cannot derive a name from the remote {remote!r}: give one with --name")
    return name


def chosen_repository(backend: Backend, name: str | None, operation: str) -> RepositoryReply:
    """The named repository, or the only one that there is, for an operation that the caller may perform."""
    if name is not None:
        return backend.send(calls.get_repository(name))
    known = backend.send(calls.list_repositories()).items
    if len(known) == 1:
        return known[0]
    you = backend.send(calls.who_am_i())  # a caller who may not do it learns that before more is asked of him
    Caller(token_id=you.token_id, name=you.name, scopes=frozenset(you.scopes)).require(
        OPERATIONS[operation].scopes or ()
    )
    if not known:
        raise InvalidInputError("no repository is registered: run `debug-server repo add REMOTE` first")
    raise InvalidInputError(f"give --repo NAME: {', '.join(row.name for row in known)} are registered")


def manifests_of(repository: RepositoryReply) -> list[str]:
    """The default manifests of a repository, which ``server init --manifest`` saved."""
    found = repository.settings.get("manifests", [])
    return [str(item) for item in found] if isinstance(found, list) else []
