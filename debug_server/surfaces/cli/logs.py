"""``debug-server logs``: prints the output of a command, from an offset."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.surfaces.cli.following import tell_what_it_waits_for
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.log_lines import LogFormat, log_for, show

app = typer.Typer(add_completion=False)


@app.command()
def logs(
    context: typer.Context,
    command: Annotated[int, typer.Argument(metavar="COMMAND", help="the command's id")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="print new output until the command ends")] = False,
    offset: Annotated[int, typer.Option(help="the byte to start at")] = 0,
    format_: Annotated[
        LogFormat, typer.Option("--format", help="lines with time and stream, or JSON")
    ] = LogFormat.TEXT,
    raw: Annotated[bool, typer.Option("--raw", help="the bytes as they are, stderr on stderr")] = False,
) -> None:
    """Print the output of a command; Ctrl-C does not end the command."""
    call = invocation(context)
    log = log_for(LogFormat.JSON if call.as_json else format_, raw=raw)
    with call.backend() as backend:
        found = backend.send(calls.get_command(command))
        if follow:
            tell_what_it_waits_for(found)
        read = backend.follow_log if follow else backend.stored_log
        show(read(command, offset=offset), log)
