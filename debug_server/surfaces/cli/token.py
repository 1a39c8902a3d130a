"""``debug-server token``: creates, lists and revokes access tokens."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, NEWEST, After, All, Limit, read_part, show_part
from debug_server.surfaces.cli.words import duration, json_pairs, listed

app = CommandsApp(no_args_is_help=True, help="Access tokens.")
COLUMNS: list[Column] = [
    ("id", lambda row: row.id),
    ("name", lambda row: row.name),
    ("scopes", lambda row: ",".join(row.scopes)),
    ("quotas", lambda row: ",".join(f"{name}={bound:g}" for name, bound in sorted(row.quotas.items())) or None),
    ("expires", lambda row: row.expires_at),
    ("last used", lambda row: row.last_used_at),
    ("revoked", lambda row: row.revoked_at),
]


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="the token's name in the audit log")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="admin, sessions:read, sessions:write, commands:write, artifacts:read; may be repeated"),
    ] = None,
    expires_in: Annotated[str | None, typer.Option(metavar="TIME", help="how long it is valid, such as 30d")] = None,
    quota: Annotated[
        list[str] | None, typer.Option(help="sessions=N, commands=N or requests_per_second=N; may be repeated")
    ] = None,
) -> None:
    """Create a token; its secret is shown only once."""
    call = invocation(context)
    with call.backend() as backend:
        row = backend.send(
            calls.create_token(
                name,
                scopes=listed(scope),
                expires_in=duration(expires_in, flag="--expires-in"),
                quotas=json_pairs(quota, flag="--quota"),
            )
        )
    call.output().result(str(row.token), row)


@app.command("list")
def list_all(context: typer.Context, limit: Limit = DEFAULT_LIMIT, every: All = False, after: After = 0) -> None:
    """List the tokens without their secrets, newest first."""
    call = invocation(context)
    request = partial(calls.list_tokens, order=NEWEST)
    with call.backend() as backend:
        part = read_part(backend, request, after=after, limit=limit, every=every)
    show_part(call.output(), part, COLUMNS)


@app.command()
def revoke(
    context: typer.Context, token: Annotated[int, typer.Argument(metavar="TOKEN", help="the token's id")]
) -> None:
    """Revoke a token."""
    call = invocation(context)
    with call.backend() as backend:
        reply = backend.send(calls.revoke_token(token))
    call.output().result(reply.message, reply)
