"""``debug-server token``: creates, lists and revokes access tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, After, Limit, show_page
from debug_server.surfaces.cli.words import duration, json_pairs, listed

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Access tokens.")
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
    expires_in: Annotated[str | None, typer.Option(help="how long it is valid, such as 30d")] = None,
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
def list_all(context: typer.Context, after: After = 0, limit: Limit = DEFAULT_LIMIT) -> None:
    """List the tokens, without their secrets."""
    call = invocation(context)
    with call.backend() as backend:
        page = backend.send(calls.list_tokens(after=after, limit=limit))
    show_page(call.output(), page, COLUMNS)


@app.command()
def revoke(
    context: typer.Context, token: Annotated[int, typer.Argument(metavar="TOKEN", help="the token's id")]
) -> None:
    """Revoke a token."""
    call = invocation(context)
    with call.backend() as backend:
        reply = backend.send(calls.revoke_token(token))
    call.output().result(reply.message, reply)
