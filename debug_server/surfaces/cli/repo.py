"""``debug-server repo``: registered git remotes."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.messages import RepositoryReply
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, After, Limit, show_page
from debug_server.surfaces.cli.remotes import absolute_remote, name_for
from debug_server.surfaces.cli.words import json_pairs

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Registered git remotes.")
COLUMNS: list[Column] = [
    ("id", lambda row: row.id),
    ("name", lambda row: row.name),
    ("branch", lambda row: row.default_branch),
    ("remote", lambda row: row.remote_url),
]


@app.command()
def add(
    context: typer.Context,
    remote: Annotated[str, typer.Argument(help="a git URL, or a path on the server's machine")],
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
                absolute_remote(remote),
                default_branch=default_branch,
                description=description,
                settings=json_pairs(setting, flag="--setting"),
            )
        )
    call.output().result(f"registered repository {row.name}: {row.remote_url}", row)


@app.command("list")
def list_all(context: typer.Context, after: After = 0, limit: Limit = DEFAULT_LIMIT) -> None:
    """List the repositories."""
    call = invocation(context)
    with call.backend() as backend:
        page = backend.send(calls.list_repositories(after=after, limit=limit))
    show_page(call.output(), page, COLUMNS)


@app.command()
def show(context: typer.Context, name: Annotated[str, typer.Argument(help="the repository's name")]) -> None:
    """Show a repository."""
    call = invocation(context)
    with call.backend() as backend:
        call.output().record(backend.send(calls.get_repository(name)))
