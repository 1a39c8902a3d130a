"""``debug-server mcp``: the Model Context Protocol over stdin and stdout."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation

app = CommandsApp()


@app.command()
def mcp(
    context: typer.Context,
    toolsets: Annotated[
        str, typer.Option(help="the tools to offer: some of core,sessions,commands,artifacts,events,admin, or all")
    ] = "core",
) -> None:
    """Speak the Model Context Protocol over stdin and stdout, for the agent that starts this program."""
    call = invocation(context)
    settings = call.server_settings()
    if settings.server is None:
        raise typer.Exit(call.programs.mcp(toolsets))
    raise typer.Exit(
        call.programs.mcp_bridge(
            settings.server,
            settings.token,
            verify_tls=settings.verify_tls,
            server_uid=settings.server_uid,
            toolsets=toolsets,
        )
    )
