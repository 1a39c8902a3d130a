"""``debug-server doctor``: what this machine can really do, and what to install."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column, plain, write_line

app = typer.Typer(add_completion=False)
COLUMNS: list[Column] = [
    ("area", lambda item: item.area),
    ("what", lambda item: item.name),
    ("state", lambda item: item.state),
    ("found", lambda item: item.detail),
]


@app.command()
def doctor(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="a settings file; default: config/runner.toml")] = None,
) -> None:
    """Check everything that commands need on this machine; exit with 0 if commands can run."""
    call = invocation(context)
    output = call.output()
    with call.programs.open_local(config=config) as local:
        found = list(local.machine.examine())
    able = all(item.state != "failed" for item in found)
    if call.as_json:
        output.json({"can_run": able, "findings": plain(found)})
        raise typer.Exit(0 if able else 1)
    output.table(found, COLUMNS)
    for item in found:
        if item.remedy is not None:
            optional = " (optional)" if item.state == "optional" else ""
            write_line(f"{item.area} {item.name}{optional}: {item.remedy}")
    write_line("commands can run here" if able else "commands cannot run here")
    raise typer.Exit(0 if able else 1)
