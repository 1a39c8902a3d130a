"""``debug-server repo``: registered git remotes."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.messages import RepositoryReply
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, NEWEST, After, All, Limit, read_part, show_part
from debug_server.surfaces.cli.remotes import name_for, remote_for
from debug_server.surfaces.cli.words import json_pairs

app = CommandsApp(no_args_is_help=True, help="Registered git remotes.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="the repository's name")]
COLUMNS: list[Column] = [
    ("id", lambda row: row.id),
    ("name", lambda row: row.name),
    ("branch", lambda row: row.default_branch),
    ("remote", lambda row: row.remote_url),
]


@app.command()
def add(
    context: typer.Context,
    remote: Annotated[str, typer.Argument(help="a git URL or a path")],
    name: Annotated[str | None, typer.Option(help="the repository's name; default: derived from the remote")] = None,
    default_branch: Annotated[str | None, typer.Option(help="default: the remote's default branch, or main")] = None,
    description: Annotated[str | None, typer.Option(help="a description")] = None,
    setting: Annotated[list[str] | None, typer.Option(help="KEY=VALUE; may be repeated")] = None,
) -> None:
    """Register a git remote."""
    call = invocation(context)
    with call.backend() as backend:
        row: RepositoryReply = backend.send(
            calls.register_repository(
                name or name_for(remote),
                remote_for(backend, remote),
                default_branch=default_branch,
                description=description,
                settings=json_pairs(setting, flag="--setting"),
            )
        )
    call.output().result(f"registered repository {row.name}: {row.remote_url}", row)


@app.command("list")
def list_all(context: typer.Context, limit: Limit = DEFAULT_LIMIT, every: All = False, after: After = 0) -> None:
    """List the repositories, newest first."""
    call = invocation(context)
    request = partial(calls.list_repositories, order=NEWEST)
    with call.backend() as backend:
        part = read_part(backend, request, after=after, limit=limit, every=every)
    show_part(call.output(), part, COLUMNS)


@app.command()
def show(context: typer.Context, name: Name) -> None:
    """Show a repository."""
    call = invocation(context)
    with call.backend() as backend:
        call.output().record(backend.send(calls.get_repository(name)))


@app.command()
def remove(context: typer.Context, name: Name) -> None:
    """Remove a repository, its mirror and its workspaces. Its sessions must be closed; its history stays."""
    call = invocation(context)
    with call.backend() as backend:
        reply = backend.send(calls.remove_repository(name))
    call.output().result(reply.message, reply)
