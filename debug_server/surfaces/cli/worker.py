"""``debug-server worker``: the supervised long-lived processes."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.client.calls import Call
from debug_server.messages import WorkerList
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, After, Limit, show_page

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Supervised long-lived processes.")
COLUMNS: list[Column] = [
    ("worker", lambda row: f"{row['name']}/{row['instance']}"),
    ("phase", lambda row: row["phase"]),
    ("reason", lambda row: row["health"]["readiness"]["reason"]),
    ("pid", lambda row: row["pid"]),
    ("restarts", lambda row: row["restarts_total"]),
    ("failures", lambda row: row["consecutive_failures"]),
    ("last exit", lambda row: _last_exit(row["last_exit"])),
]
Name = Annotated[str, typer.Argument(metavar="WORKER", help="its name in config/workers.toml")]
Instance = Annotated[int | None, typer.Option(help="one of its instances, from 0; all of them without it")]


@app.command("list")
def list_all(context: typer.Context, after: After = 0, limit: Limit = DEFAULT_LIMIT) -> None:
    """The workers, and how each is."""
    _show(context, calls.list_workers(after=after, limit=limit))


@app.command()
def restart(context: typer.Context, worker: Name, instance: Instance = None) -> None:
    """Let it finish what it has, end it and start the next; one that is down starts now."""
    _show(context, calls.restart_worker(worker, instance=instance))


@app.command()
def reset(context: typer.Context, worker: Name, instance: Instance = None) -> None:
    """Forget its failures; one that gave up starts again."""
    _show(context, calls.reset_worker(worker, instance=instance))


@app.command()
def stop(context: typer.Context, worker: Name, instance: Instance = None) -> None:
    """Drain it and keep it down until it is restarted or reset."""
    _show(context, calls.stop_worker(worker, instance=instance))


def _show(context: typer.Context, call: Call[WorkerList]) -> None:
    asked = invocation(context)
    with asked.backend() as backend:
        found = backend.send(call)
    show_page(asked.output(), found, COLUMNS)


def _last_exit(found: dict[str, object] | None) -> str:
    if found is None:
        return ""
    return str(found["error"] or (f"signal {found['signal']}" if found["signal"] else f"status {found['code']}"))
