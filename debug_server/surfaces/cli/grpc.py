"""``debug-server grpc``: the one server in the background, with its gRPC services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from debug_server.errors import ConfigurationError
from debug_server.service import background
from debug_server.service.background import ServerFiles
from debug_server.surfaces.cli.invocation import Invocation, invocation

if TYPE_CHECKING:
    from debug_server.surfaces.cli.output import Output

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The server in the background.")
_NOT_RUNNING = 1


@app.command()
def start(
    context: typer.Context,
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="GOVERNOR_GRPC_PORT", help="of gRPC; 0 takes a free one")
    ] = 50051,
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="of HTTP; 0 takes a free one")] = 0,
    host: Annotated[str, typer.Option(help="the address to listen on")] = "127.0.0.1",
) -> None:
    """Start the server in the background; returns when it answers."""
    call = invocation(context)
    output = call.output()
    _ensure_configuration(output)  # first: it makes this folder the place of the server's data
    places = places_of(call)
    with background.one_at_a_time(places):
        state, word = background.known_state(places), "the server runs already"
        if not state:
            _prepare(call, output)
            words = ["--port", str(http_port), "--grpc-port", str(port), "--host", host, "--log-level", "INFO"]
            try:
                state, word = background.start(places, words), "started"
            except ConfigurationError:
                state = background.known_state(places)  # a `serve` that nobody told us of was faster
                if not state:
                    raise
    output.say(_sentence(word, state), {**state, "running": True})


@app.command()
def stop(context: typer.Context) -> None:
    """End the server; commands that run go on under their keepers."""
    call = invocation(context)
    places = places_of(call)
    pid = background.stop(places)
    words = "no server runs" if pid is None else f"stopped server {pid}"
    if pid is not None and (sentence := background.continuing(places.keepers)):
        words += f"\n{sentence}"
    call.output().say(words, {"stopped": pid})


@app.command()
def status(context: typer.Context) -> None:
    """Whether the server runs, and what its configuration says; status 1 when it does not run."""
    call = invocation(context)
    state = background.known_state(places_of(call))
    lines, facts = _configuration()
    first = _sentence("running", state) if state else "not running: start it with `debug-server grpc start`"
    call.output().say("\n".join([first, *lines]), {**state, "running": bool(state), **facts})
    if not state:
        raise typer.Exit(_NOT_RUNNING)


def places_of(call: Invocation) -> ServerFiles:
    """The files of this machine's server."""
    with call.programs.open_local() as local:
        return ServerFiles(
            lock=local.server_lock_path,
            log=local.data_folder / "server.log",
            keepers=local.keepers_dir,
        )


def _ensure_configuration(output: Output) -> None:
    from debug_server.dispatch.examples import ensure_configuration
    from debug_server.dispatch.folder import configuration_folder

    folder = configuration_folder()
    if ensure_configuration(folder.path, folder.owners):
        output.say(f"wrote runners.yml and repos.yml into {folder.path}", {"wrote": str(folder.path)})


def _prepare(call: Invocation, output: Output) -> None:
    """What a first start needs, and errors of the configuration here rather than in a log."""
    from debug_server.dispatch.configuration import read_configuration
    from debug_server.dispatch.folder import configuration_folder

    folder = configuration_folder()
    read_configuration(folder.path, owners=folder.owners)
    with call.programs.open_local() as local:
        if local.first_token.is_missing():
            secret = local.first_token.make()
            output.say(f"admin token, shown this once: {secret}", {"token": secret})


def _sentence(word: str, state: dict[str, Any]) -> str:
    port = f", gRPC on port {state['grpc_port']}" if "grpc_port" in state else ""
    web = f", {state['http']}" if state.get("http") else ""
    return f"{word}: server {state['pid']}{port}{web}"


def _configuration() -> tuple[list[str], dict[str, Any]]:
    """What the files here say, for people and for programs."""
    from debug_server.dispatch.configuration import read_configuration
    from debug_server.dispatch.folder import RUNNERS, configuration_folder

    folder = configuration_folder()
    if not (folder.path / RUNNERS).exists():
        problem = f"no runners: {folder.path / RUNNERS} does not exist"
        return [problem], {"configuration": problem}
    try:
        found = read_configuration(folder.path, owners=folder.owners).runners.runners.values()
    except ConfigurationError as error:
        return [f"configuration refused: {error}"], {"configuration": str(error)}
    lines = []
    for runner in found:
        where = "all repositories" if runner.repos is None else ", ".join(runner.repos)
        lines.append(f"  {runner.name:<12} {runner.executor:<7} {', '.join(runner.skills)} in {where}")
    return lines, {"configuration": "ok", "runners": [runner.name for runner in found]}
