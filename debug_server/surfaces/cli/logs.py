"""``debug-server logs``: prints the output of a command: all of it, the last lines, matching lines or a digest."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.following import tell_what_it_waits_for
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.log_lines import LogFormat, log_for, show
from debug_server.surfaces.cli.log_views import (
    Context,
    Digest,
    Grep,
    IgnoreCase,
    MaxTokens,
    PatternSearch,
    Tail,
    print_digest,
    print_matches,
    print_no_match,
    refuse_together,
    tail_start,
)

app = CommandsApp()


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
    tail: Tail = None,
    grep: Grep = None,
    ignore_case: IgnoreCase = False,
    context_lines: Context = 0,
    digest: Digest = False,
    max_tokens: MaxTokens = None,
) -> None:
    """Print the output of a command; Ctrl-C does not end the command. With --grep, exit with 1 if no line matches."""
    refuse_together("--digest" if digest else None, {"--grep": grep, "--tail": tail})
    refuse_together("--digest" if digest else "--grep" if grep else None, {"--follow": follow, "--raw": raw})
    refuse_together("--offset" if offset else None, {"--digest": digest, "--tail": tail})
    call = invocation(context)
    log = log_for(LogFormat.JSON if call.as_json else format_, raw=raw)
    with call.backend() as backend:
        found = backend.send(calls.get_command(command))
        if follow:
            tell_what_it_waits_for(found)
        if digest:
            print_digest(backend, call.output(), command, max_tokens)
            return
        start = tail_start(backend, command, tail, offset)
        if grep is not None:
            search = PatternSearch(pattern=grep, ignore_case=ignore_case, context=context_lines)
            if not print_matches(backend, call.output(), command, search, offset=start):
                print_no_match(grep)
                raise typer.Exit(1)
            return
        read = backend.follow_log if follow else backend.stored_log
        show(read(command, offset=start), log)
