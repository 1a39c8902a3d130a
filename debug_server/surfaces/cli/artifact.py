"""``debug-server artifact``: files kept from commands."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.errors import InvalidInputError
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column, cell, progress
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, NEWEST, After, All, Limit, read_part, show_part
from debug_server.surfaces.cli.session import SessionArgument

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Files kept from commands.")
ArtifactArgument = Annotated[int, typer.Argument(metavar="ARTIFACT", help="the artifact's id")]
COLUMNS: list[Column] = [
    ("id", lambda row: row.id),
    ("command", lambda row: row.command_id),
    ("kind", lambda row: row.kind),
    ("size", lambda row: row.size),
    ("name", lambda row: row.name),
]


@app.command("list")
def list_all(
    context: typer.Context,
    session: SessionArgument,
    limit: Limit = DEFAULT_LIMIT,
    every: All = False,
    after: After = 0,
) -> None:
    """List a session's artifacts, newest first."""
    call = invocation(context)
    request = partial(calls.list_artifacts, session, order=NEWEST)
    with call.backend() as backend:
        part = read_part(backend, request, after=after, limit=limit, every=every)
    show_part(call.output(), part, COLUMNS)


@app.command()
def show(context: typer.Context, session: SessionArgument, artifact: ArtifactArgument) -> None:
    """Show an artifact's metadata."""
    call = invocation(context)
    with call.backend() as backend:
        call.output().record(backend.send(calls.get_artifact(session, artifact)))


def target_of(name: str, output: Path | None) -> Path:
    """The file to write; with a name that the server chose it must be new, and the name harmless."""
    if output is not None and not output.is_dir():
        if output.parent.resolve() == Path("/dev"):  # root would replace the device, or the link to it
            raise InvalidInputError(f"{str(output)!r} is in /dev, and a file would replace it: choose another path")
        return output
    own = Path(name).name
    target = (output or Path()) / own
    if (reason := _why_refused(own)) or os.path.lexists(target):
        raise InvalidInputError(f"{str(target)!r} {reason or 'already exists'}: choose the file with --output FILE")
    return target


def _why_refused(name: str) -> str | None:
    """Why a server may not choose the name: a hidden file may be a setting, and ``rm *`` takes ``-rf`` for options."""
    if not name or name.startswith("."):
        return "is hidden, which the server may not choose"
    if name.startswith("-"):
        return "begins with '-', which the server may not choose"
    return "has control characters, which the server may not choose" if cell(name) != name else None


@app.command()
def download(
    context: typer.Context,
    session: SessionArgument,
    artifact: ArtifactArgument,
    output: Annotated[
        Path | None, typer.Option(help="file or folder to write; default: the artifact's name in the current folder")
    ] = None,
) -> None:
    """Download an artifact."""
    call = invocation(context)
    with call.backend() as backend:
        row = backend.send(calls.get_artifact(session, artifact))
        target = target_of(row.name, output)
        progress(f"fetching {row.name}")
        backend.download(session, artifact, target, replace=target == output)
    size = target.lstat().st_size
    call.output().result(
        f"{target} has {size} bytes", {"id": row.id, "name": row.name, "path": str(target), "size": size}
    )
