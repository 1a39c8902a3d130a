"""``debug-server server``: setting a server up for one repository."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.client.connection import save_server_settings
from debug_server.errors import InvalidInputError
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import Invocation, invocation
from debug_server.surfaces.cli.output import print_notice
from debug_server.surfaces.cli.remotes import name_for, remote_for

app = CommandsApp(no_args_is_help=True, help="Set up a server for a repository.")


@app.callback()
def group() -> None:
    """Set up a server for a repository."""


@app.command()
def init(
    context: typer.Context,
    remote: Annotated[str, typer.Argument(help="a git URL or a path")],
    name: Annotated[str | None, typer.Option(help="the repository's name; default: derived from the remote")] = None,
    default_branch: Annotated[str | None, typer.Option(help="default: the remote's default branch, or main")] = None,
    manifest: Annotated[
        list[str] | None, typer.Option(help="a manifest for sessions that name none; may be repeated")
    ] = None,
    save_token: Annotated[bool, typer.Option("--save-token", help="save the server and the token")] = False,
) -> None:
    """Register a repository, so that sessions can be opened in it."""
    call = invocation(context)
    with call.backend() as backend:
        row = backend.send(
            calls.register_repository(
                name or name_for(remote),
                remote_for(backend, remote),
                default_branch=default_branch,
                settings={"manifests": manifest} if manifest else None,
            )
        )
    call.output().result(f"registered repository {row.name}: {row.remote_url}", row)
    if save_token:
        _remember(call)


def _remember(call: Invocation) -> None:
    settings = call.server_settings()
    if settings.server is None or settings.token is None:
        raise InvalidInputError("--save-token needs a server and its token: give --base-url and --token -")
    changes = {"base_url": settings.server, "token": settings.token, "verify_tls": settings.verify_tls}
    print_notice(f"saved in {save_server_settings(changes)}")
