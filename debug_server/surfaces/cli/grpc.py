"""``debug-server grpc``: starts, stops and shows the server in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from debug_server.errors import ConfigurationError
from debug_server.service import background
from debug_server.service.background import ServerFiles
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import Invocation, invocation

if TYPE_CHECKING:
    from debug_server.surfaces.cli.output import Output

app = CommandsApp(no_args_is_help=True, help="The server in the background.")
_NOT_RUNNING = 1


@app.command()
def start(
    context: typer.Context,
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="GOVERNOR_GRPC_PORT", help="gRPC port; 0 chooses a free port")
    ] = 50051,
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="HTTP port; 0 chooses a free port")] = 0,
    host: Annotated[str, typer.Option(help="the address to listen on")] = "127.0.0.1",
) -> None:
    """Start the server in the background; returns when it serves gRPC."""
    call = invocation(context)
    output = call.output()
    _ensure_configuration(output)  # first, because it creates the data folder here
    places = server_files(call)
    with background.start_lock(places):
        state, outcome = background.running_server(places), "already running"
        if not state:
            _prepare(call, output)
            words = ["--port", str(http_port), "--grpc-port", str(port), "--host", host, "--log-level", "INFO"]
            try:
                state, outcome = background.start(places, words), "started"
            except ConfigurationError:
                state = background.running_server(places)  # another process has started a server meanwhile
                if not state:
                    raise
    output.result(_status_line(outcome, state), {**state, "running": True})


@app.command()
def stop(context: typer.Context) -> None:
    """Stop the server. Running commands continue, and the next server takes them over."""
    call = invocation(context)
    files = server_files(call)
    pid = background.stop(files)
    words = "no server is running" if pid is None else f"stopped server {pid}"
    if pid is not None and (sentence := background.continuing(files.keepers)):
        words += f"\n{sentence}"
    call.output().result(words, {"stopped": pid})


@app.command()
def status(context: typer.Context) -> None:
    """Show whether the server is running. Also show its configuration; exit with 1 if it is not running."""
    call = invocation(context)
    state = background.running_server(server_files(call))
    lines, facts = _configuration()
    first = _status_line("running", state) if state else "not running: start it with `debug-server grpc start`"
    call.output().result("\n".join([first, *lines]), {**state, "running": bool(state), **facts})
    if not state:
        raise typer.Exit(_NOT_RUNNING)


def server_files(call: Invocation) -> ServerFiles:
    """The files of the server of this data folder."""
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
    if ensure_configuration(folder.path, folder.trusted_uids):
        output.result(f"wrote runners.yml and repos.yml into {folder.path}", {"wrote": str(folder.path)})


def _prepare(call: Invocation, output: Output) -> None:
    """Check the configuration, so that errors appear here and not only in the log, and create the first token."""
    from debug_server.dispatch.configuration import read_configuration
    from debug_server.dispatch.folder import configuration_folder

    folder = configuration_folder()
    read_configuration(folder.path, trusted_uids=folder.trusted_uids)
    with call.programs.open_local() as local:
        if local.first_token.is_missing():
            secret = local.first_token.create()
            output.result(f"admin token, shown only once: {secret}", {"token": secret})


def _status_line(outcome: str, state: dict[str, Any]) -> str:
    port = f", gRPC on port {state['grpc_port']}" if "grpc_port" in state else ""
    web = f", {state['http']}" if state.get("http") else ""
    return f"{outcome}: server {state['pid']}{port}{web}"


def _configuration() -> tuple[list[str], dict[str, Any]]:
    """The state of the configuration, as lines and as data."""
    from debug_server.dispatch.configuration import read_configuration
    from debug_server.dispatch.folder import RUNNERS, configuration_folder

    folder = configuration_folder()
    if not (folder.path / RUNNERS).exists():
        problem = f"no runners: {folder.path / RUNNERS} does not exist"
        return [problem], {"configuration": problem}
    try:
        found = read_configuration(folder.path, trusted_uids=folder.trusted_uids).runners.runners.values()
    except ConfigurationError as error:
        return [f"configuration refused: {error}"], {"configuration": str(error)}
    lines = []
    for runner in found:
        where = "all repositories" if runner.repos is None else ", ".join(runner.repos)
        lines.append(f"  {runner.name:<12} {runner.executor:<7} {', '.join(runner.skills)} in {where}")
    return lines, {"configuration": "ok", "runners": [runner.name for runner in found]}
