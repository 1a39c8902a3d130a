"""``debug-server grpc``: the one server in the background, with its gRPC services."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from debug_server.surfaces.cli import background
from debug_server.surfaces.cli.background import Places
from debug_server.surfaces.cli.invocation import Invocation, invocation

if TYPE_CHECKING:
    from debug_server.surfaces.cli.output import Output

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The server in the background.")
_NOT_RUNNING = 1


@app.command()
def start(
    context: typer.Context,
    port: Annotated[int, typer.Option(envvar="GOVERNOR_GRPC_PORT", help="of gRPC; 0 takes a free one")] = 50051,
    http_port: Annotated[int, typer.Option(help="of HTTP; 0 takes a free one")] = 0,
    host: Annotated[str, typer.Option(help="the address to listen on")] = "127.0.0.1",
) -> None:
    """Start the server in the background; returns when it answers."""
    call = invocation(context)
    output = call.output()
    places = places_of(call)
    if state := background.known_state(places):
        _show(output, "the server runs already", state)
        return
    _prepare(call, output)
    state = background.start(
        places, ["--port", str(http_port), "--grpc-port", str(port), "--host", host, "--log-level", "INFO"]
    )
    _show(output, "started", state)


@app.command()
def stop(context: typer.Context) -> None:
    """End the server; commands that run go on under their keepers."""
    call = invocation(context)
    pid = background.stop(places_of(call))
    words = "no server runs" if pid is None else f"stopped server {pid}"
    call.output().say(words, {"stopped": pid})


@app.command()
def status(context: typer.Context) -> None:
    """Whether the server runs, and what its configuration says."""
    call = invocation(context)
    output = call.output()
    state = background.known_state(places_of(call))
    if state:
        _show(output, "running", state)
    else:
        output.say("not running: start it with `debug-server grpc start`", {"running": False})
    _show_configuration(output)
    if not state:
        raise typer.Exit(_NOT_RUNNING)


def places_of(call: Invocation) -> Places:
    """The files of this machine's server."""
    with call.programs.open_local() as local:
        return Places(lock=local.server_lock_path, log=local.settings.paths.artifacts_root / "server.log")


def _prepare(call: Invocation, output: Output) -> None:
    """What a first start needs, and errors of the configuration here rather than in a log."""
    from debug_server.dispatch.configuration import read_configuration
    from debug_server.dispatch.examples import ensure_configuration
    from debug_server.dispatch.folder import configuration_folder

    folder = configuration_folder()
    if ensure_configuration(folder):
        output.say(f"wrote runners.yml and repos.yml into {folder}", None)
    read_configuration(folder)
    with call.programs.open_local() as local:
        if not any(token.revoked_at is None for token in local.store.list_tokens()):
            _, secret = local.store.create_token("admin", ["admin"])
            output.say(f"admin token, shown this once: {secret}", None)


def _show(output: Output, word: str, state: dict[str, Any]) -> None:
    port = f", gRPC on port {state['grpc_port']}" if "grpc_port" in state else ""
    web = f", {state['http']}" if state.get("http") else ""
    output.say(f"{word}: server {state['pid']}{port}{web}", {**state, "running": True})


def _show_configuration(output: Output) -> None:
    from debug_server.dispatch.configuration import RUNNERS, read_configuration
    from debug_server.dispatch.folder import configuration_folder
    from debug_server.errors import ConfigurationError

    folder = configuration_folder()
    if not (folder / RUNNERS).exists():
        output.say(f"no runners: {Path(folder / RUNNERS)} does not exist", None)
        return
    try:
        found = read_configuration(folder)
    except ConfigurationError as error:
        output.say(f"configuration refused: {error}", None)
        return
    for runner in found.runners.runners.values():
        where = "all repositories" if runner.repos is None else ", ".join(runner.repos)
        output.say(f"  {runner.name:<12} {runner.executor:<7} {', '.join(runner.skills)} in {where}", None)
