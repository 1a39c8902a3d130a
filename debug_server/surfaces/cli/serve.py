"""``debug-server serve``: the one server process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.words import Grace, seconds

app = CommandsApp()


@app.command()
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="the address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="HTTP port; 0 chooses a free port")] = 8000,
    grpc_port: Annotated[int, typer.Option(min=0, max=65535, help="gRPC port; 0 chooses a free port")] = 50051,
    grpc: Annotated[bool, typer.Option("--grpc/--no-grpc", help="serve gRPC, too")] = True,
    tls_cert: Annotated[Path | None, typer.Option(help="a certificate chain, as PEM")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="its key, as PEM")] = None,
    grace: Grace = "10",
    config: Annotated[Path | None, typer.Option(help="a settings file; default: config/runner.toml")] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR")] = "INFO",
) -> None:
    """Serve HTTP, WebSockets and gRPC until SIGTERM. Running commands continue, and the next server takes them over."""
    status = invocation(context).programs.serve(
        host=host,
        port=port,
        grpc_port=grpc_port if grpc else None,
        tls_cert=tls_cert,
        tls_key=tls_key,
        grace_seconds=seconds(grace, flag="--grace"),
        config=config,
        log_level=log_level.upper(),
    )
    raise typer.Exit(status)
