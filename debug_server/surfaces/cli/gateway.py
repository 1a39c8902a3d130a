"""``debug-server gateway``: the OpenAI-compatible API by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.words import Grace, seconds

app = CommandsApp(no_args_is_help=True, help="The OpenAI-compatible API on its own.")


@app.callback()
def group() -> None:
    """The OpenAI-compatible API over a supervised codex app-server."""


@app.command()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="the address to listen on; default: PROXY_HOST")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0 chooses a free port; default: PORT, else 11435")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="a certificate chain, as PEM")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="its key, as PEM")] = None,
    grace: Grace = "10",
    config: Annotated[Path | None, typer.Option(help="a settings file; default: config/runner.toml")] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR")] = "INFO",
) -> None:
    """Serve `/v1` and the probes until SIGTERM, with a worker of its own."""
    status = invocation(context).programs.serve_gateway(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        grace_seconds=seconds(grace, flag="--grace"),
        config=config,
        log_level=log_level.upper(),
    )
    raise typer.Exit(status)
