"""``debug-server ps``: the commands that run or wait now."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.found_commands import COMMAND, ID, SESSION, STATUS, WHERE, age_of, find, waiting_text
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column, print_notice
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, After, All, Limit, show_part
from debug_server.surfaces.cli.remotes import RepositoryName

app = CommandsApp()


def _reason(row: Any) -> str | None:
    if row.cancel_requested:
        return "is being cancelled"
    return waiting_text(row) if row.status == "pending" else None


COLUMNS: list[Column] = [ID, STATUS, ("for", age_of), SESSION, WHERE, ("reason", _reason), COMMAND]


@app.command()
def ps(
    context: typer.Context,
    repo: RepositoryName = None,
    session: Annotated[int | None, typer.Option(help="only those of this session")] = None,
    limit: Limit = DEFAULT_LIMIT,
    every: All = False,
    after: After = 0,
) -> None:
    """List the commands that run or wait now, newest first: of every session, host task and runner."""
    call = invocation(context)
    with call.backend() as backend:
        part = find(backend, status=["active"], repo=repo, session=session, after=after, limit=limit, every=every)
    if not part.items and not call.as_json:
        print_notice("no command runs or waits; `debug-server history` lists those that have ended")
        return
    show_part(call.output(), part, COLUMNS)
