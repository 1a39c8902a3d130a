"""``debug-server status``: shows the server's health and the caller's identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar

import typer

from debug_server.client import calls
from debug_server.client.calls import Call
from debug_server.errors import AccessError
from debug_server.messages import Health, LeaseList, WhoAmI, WorkerList
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column, Output
from debug_server.surfaces.cli.paging import read_part
from debug_server.surfaces.cli.worker import COLUMNS as WORKERS

app = CommandsApp()
T = TypeVar("T")
_PAGE = 1000
LEASES: list[Column] = [
    ("id", lambda row: row.id),
    ("status", lambda row: row.status),
    ("commit", lambda row: (row.commit_sha or "-")[:12]),
    ("owner", lambda row: row.owner),
    ("expires", lambda row: row.expires_at),
    ("path", lambda row: row.path),
]


@app.command()
def status(
    context: typer.Context,
    leases: Annotated[bool, typer.Option("--leases", help="list the workspaces and their holders")] = False,
    workers: Annotated[bool, typer.Option("--workers", help="list the supervised workers")] = False,
) -> None:
    """Show the server's health and your identity; exit with 1 if the server is not healthy."""
    call = invocation(context)
    with call.backend() as backend:
        found = Status(
            server=backend.place,
            health=backend.send(calls.health()),
            you=_or_none_if_forbidden(backend, calls.who_am_i()),
            leases=_leases(backend),
            workers=_or_none_if_forbidden(backend, calls.list_workers(limit=_PAGE)),
        )
    output = call.output()
    if call.as_json:
        output.record(found)
    else:
        _show(output, found, leases=leases, workers=workers)
    raise typer.Exit(0 if found.health.ok else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The results; None where the caller has no access."""

    server: str
    health: Health
    you: WhoAmI | None
    leases: LeaseList | None
    workers: WorkerList | None


def _or_none_if_forbidden(backend: Backend, call: Call[T]) -> T | None:
    try:
        return backend.send(call)
    except AccessError:
        return None


def _leases(backend: Backend) -> LeaseList | None:
    try:
        return LeaseList(items=read_part(backend, calls.list_leases).items)
    except AccessError:
        return None


def _show(output: Output, found: Status, *, leases: bool, workers: bool) -> None:
    you = (
        "unknown: no valid token was given"
        if found.you is None
        else f"{found.you.name} ({', '.join(found.you.scopes)})"
    )
    facts = {"server": found.server, "health": found.health.message, **found.health.checks, "you": you}
    if found.leases is not None:
        held = sum(row.status != "idle" for row in found.leases)
        facts["workspaces"] = f"{held} of {len(found.leases)} held"
    output.record(facts)
    if leases and found.leases is not None:
        output.table(found.leases.items, LEASES)
    if workers and found.workers is not None:
        output.table(found.workers.items, WORKERS)
