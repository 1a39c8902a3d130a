"""``debug-server env``: the environments of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column, age_text
from debug_server.surfaces.cli.words import duration, size

app = CommandsApp(no_args_is_help=True, help="Shared environments on this machine.")
COLUMNS: list[Column] = [
    ("key", lambda row: row.key),
    ("builder", lambda row: row.builder),
    ("packages", lambda row: row.packages),
    ("mib", lambda row: round(row.total_bytes / (1 << 20), 1)),
    ("state", lambda row: "in use" if row.in_use else f"idle for {age_text(row.idle_seconds)}"),
    ("verified", lambda row: "never" if (age := row.verified_seconds_ago) is None else f"{age_text(age)} ago"),
    ("names", lambda row: ", ".join(row.names) or None),
]
DAMAGED = 1


@app.command("list")
def list_all(context: typer.Context) -> None:
    """List the complete environments, the least recently used first."""
    call = invocation(context)
    with call.programs.open_local() as local:
        call.output().table(local.environments.installed(), COLUMNS)


@app.command()
def verify(
    context: typer.Context,
    which: Annotated[list[str] | None, typer.Argument(help="keys or names; default: all of them")] = None,
) -> None:
    """Check every file of an environment. A damaged one is not used again, and is rebuilt when it is needed."""
    call = invocation(context)
    with call.programs.open_local() as local:
        damaged = False
        for item, wrong in local.environments.verify(which or []):
            damaged = damaged or bool(wrong)
            lines = [f"  {path} {what}" for path, what in sorted(wrong.items())]
            text = "\n".join([f"{item.key} is {'damaged' if wrong else 'whole'}", *lines])
            call.output().result(text, {"key": item.key, "damaged": wrong})
    raise typer.Exit(DAMAGED if damaged else 0)


@app.command()
def gc(
    context: typer.Context,
    idle: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="remove those unused for longer, such as 7d; default: as configured"),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="SIZE", help="the largest total size, such as 10G; default: as configured")
    ] = None,
) -> None:
    """Remove old environments. First those unused for too long, then the least recently used until the rest fits."""
    call = invocation(context)
    with call.programs.open_local() as local:
        found = local.environments.collect(
            max_idle=duration(idle, flag="--idle"), max_bytes=size(budget, flag="--budget")
        )
    freed = f"{found.freed_bytes / (1 << 20):.1f} MiB freed, {found.kept_bytes / (1 << 20):.1f} MiB kept"
    call.output().result(f"{len(found.removed)} environments removed, {freed}", found)
