"""``debug-server artifact``: files that commands left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column
from debug_server.surfaces.cli.session import SessionArgument

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Files that commands left.")
ArtifactArgument = Annotated[int, typer.Argument(metavar="ARTIFACT", help="an artifact's number")]
COLUMNS: list[Column] = [
    ("id", lambda row: row.id),
    ("command", lambda row: row.command_id),
    ("kind", lambda row: row.kind),
    ("size", lambda row: row.size),
    ("name", lambda row: row.name),
]


@app.command("list")
def list_all(context: typer.Context, session: SessionArgument) -> None:
    """A session's artifacts."""
    call = invocation(context)
    with call.backend() as backend:
        found = backend.send(calls.list_artifacts(session))
    call.output().table(found.items, COLUMNS)


@app.command()
def show(context: typer.Context, session: SessionArgument, artifact: ArtifactArgument) -> None:
    """One artifact."""
    call = invocation(context)
    with call.backend() as backend:
        call.output().record(backend.send(calls.get_artifact(session, artifact)))


@app.command()
def download(
    context: typer.Context,
    session: SessionArgument,
    artifact: ArtifactArgument,
    output: Annotated[Path | None, typer.Option(help="the file to write; left out: its own name, here")] = None,
) -> None:
    """Fetch its bytes."""
    call = invocation(context)
    with call.backend() as backend:
        row = backend.send(calls.get_artifact(session, artifact))
        target = output or Path(Path(row.name).name)
        backend.download(session, artifact, target / Path(row.name).name if target.is_dir() else target)
    call.output().say(f"{target} has {row.size} bytes", {**_facts(row), "path": str(target)})


def _facts(row: object) -> dict[str, object]:
    return {name: getattr(row, name) for name in ("id", "session_id", "name", "size", "sha256")}
