"""``debug-server history``: the commands that have ended."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.found_commands import (
    COMMAND,
    ID,
    SESSION,
    STATUS,
    WHERE,
    duration_of,
    find,
    seconds_since,
)
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column, age_text, print_notice
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, After, All, Limit, show_part
from debug_server.surfaces.cli.remotes import RepositoryName
from debug_server.surfaces.cli.words import listed, one_of

_ENDS = ("succeeded", "failed", "cancelled")
app = CommandsApp()


def _reason(row: Any) -> str:
    if row.exit_reason == "nonzero_exit":
        return f"status {row.exit_code}"
    signal = (row.exit or {}).get("signal")
    return f"{row.exit_reason} ({signal})" if row.exit_reason == "signaled" else str(row.exit_reason)


def _ended(row: Any) -> str:
    return f"{age_text(seconds_since(row.finished_at))} ago"


COLUMNS: list[Column] = [
    ID,
    STATUS,
    ("reason", _reason),
    ("took", duration_of),
    ("ended", _ended),
    SESSION,
    WHERE,
    COMMAND,
]


@app.command()
def history(
    context: typer.Context,
    status: Annotated[
        list[str] | None, typer.Option(help="only those that ended so: succeeded, failed or cancelled; may be repeated")
    ] = None,
    repo: RepositoryName = None,
    session: Annotated[int | None, typer.Option(help="only those of this session")] = None,
    limit: Limit = DEFAULT_LIMIT,
    every: All = False,
    after: After = 0,
) -> None:
    """List the commands that have ended, newest first. `debug-server rerun ID` runs one again."""
    call = invocation(context)
    with call.backend() as backend:
        wanted = one_of(listed(status), flag="--status", known=_ENDS) or ["ended"]
        part = find(backend, status=wanted, repo=repo, session=session, after=after, limit=limit, every=every)
    if not part.items and not call.as_json:
        has_filter = bool(status or repo) or session is not None
        what = "no such command has ended" if has_filter else "no command that you may see has ended"
        print_notice(f"{what} ({backend.place})")
        return
    show_part(call.output(), part, COLUMNS)
