"""``debug-server worker``: the supervised long-lived processes."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.client import calls
from debug_server.client.calls import Call
from debug_server.messages import WorkerList
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import Column
from debug_server.surfaces.cli.paging import DEFAULT_LIMIT, After, All, Limit, read_part, show_part

app = CommandsApp(no_args_is_help=True, help="Supervised long-lived processes.")
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
Instance = Annotated[int | None, typer.Option(help="the number of one instance, from 0; default: all")]


@app.command("list")
def list_all(context: typer.Context, limit: Limit = DEFAULT_LIMIT, every: All = False, after: After = 0) -> None:
    """List the workers and their states."""
    call = invocation(context)
    with call.backend() as backend:
        part = read_part(backend, calls.list_workers, after=after, limit=limit, every=every)
    show_part(call.output(), part, COLUMNS)


@app.command()
def restart(context: typer.Context, worker: Name, instance: Instance = None) -> None:
    """Replace a worker's process, after it has finished its requests. A stopped worker starts at once."""
    _show(context, calls.restart_worker(worker, instance=instance))


@app.command()
def reset(context: typer.Context, worker: Name, instance: Instance = None) -> None:
    """Clear a worker's failures; a worker that gave up starts again."""
    _show(context, calls.reset_worker(worker, instance=instance))


@app.command()
def stop(context: typer.Context, worker: Name, instance: Instance = None) -> None:
    """Stop a worker, after it has finished its requests. It stays stopped until it is restarted or reset."""
    _show(context, calls.stop_worker(worker, instance=instance))


def _show(context: typer.Context, call: Call[WorkerList]) -> None:
    invoked = invocation(context)
    with invoked.backend() as backend:
        found = backend.send(call)
    invoked.output().table(found.items, COLUMNS)


def _last_exit(found: dict[str, object] | None) -> str:
    if found is None:
        return ""
    return str(found["error"] or (f"signal {found['signal']}" if found["signal"] else f"status {found['code']}"))
