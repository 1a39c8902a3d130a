"""``debug-server purge``: end what runs in a data folder and remove it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from debug_server.errors import DebugServerError, InvalidInputError
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.outcome import human_size
from debug_server.surfaces.cli.output import without_controls, write_line

if TYPE_CHECKING:
    from debug_server.service.data_folder import Survey

app = CommandsApp()


@app.command()
def purge(
    context: typer.Context,
    folder: Annotated[Path | None, typer.Argument(help="the data folder; default: as configured")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """End all servers, commands and workers of a data folder, unmount its workspaces and remove it.

    First show what would be ended and removed. Folders that are configured outside the data folder, and a
    PostgreSQL database, are kept.
    """
    from debug_server.service.data_folder import configured_folder, survey
    from debug_server.service.data_folder import purge as remove

    call = invocation(context)
    if folder is None:
        folder, why_own = configured_folder()
        if yes and why_own:
            raise InvalidInputError(
                f"nothing was removed: {why_own}; to remove this user's data folder, name it: "
                f"debug-server purge --yes {shlex.quote(str(folder))}"
            )
    found = survey(folder)
    if not call.as_json:
        if folder.is_symlink():
            write_line(without_controls(f"{folder} is a link and stays; its target is"))
        for line in _lines(found):
            write_line(without_controls(line))
    if not yes and not sys.stdin.isatty():
        raise InvalidInputError("nothing was removed: give --yes to remove it")
    if not yes and not typer.confirm("End and remove all this?"):
        raise InvalidInputError("nothing was removed")
    left = remove(found)
    if left:
        raise DebugServerError("could not be removed: " + "; ".join(map(str, left)))
    what = f"{found.root}, but for {', '.join(found.foreign)}" if found.foreign else f"{found.root}"
    call.output().result(without_controls(f"removed {what}: {human_size(found.size)}"), _summary(found))


def _lines(found: Survey) -> list[str]:
    lines = [f"data folder {found.root} ({human_size(found.size)})"]
    lines += [f"  end process {item.pid}: {item.command_line}" for item in found.processes]
    for word, commands in (("command", found.commands), ("worker", found.workers)):
        lines += [f"  end {word} {item.command_id}: {item.command_line()}" for item in commands]
    lines += [f"  damaged, no process is ended for it: {item}" for item in found.damaged]
    lines += [f"  unmount {path}" for path in found.mounts]
    lines += [f"  remove {entry.name} ({human_size(entry.size)})" for entry in found.entries]
    lines += [f"  keep {name}, which is not debug-server's" for name in found.foreign]
    return lines


def _summary(found: Survey) -> dict[str, object]:
    return {
        "folder": str(found.root),
        "bytes": found.size,
        "processes": [item.pid for item in found.processes],
        "commands": [item.command_id for item in found.commands],
        "workers": [item.command_id for item in found.workers],
        "damaged": found.damaged,
        "mounts": [str(path) for path in found.mounts],
        "removed": [entry.name for entry in found.entries],
        "kept": found.foreign,
    }
