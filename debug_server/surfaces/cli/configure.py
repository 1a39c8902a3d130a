"""``debug-server configure``: remember which server to speak to."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.errors import InvalidInputError
from debug_server.surfaces.cli.connection import GRPC_SCHEME, save_connection
from debug_server.surfaces.cli.invocation import invocation

app = typer.Typer(add_completion=False)


@app.command()
def configure(
    context: typer.Context,
    base_url: Annotated[
        str | None, typer.Option(help="of the server; grpc://HOST:PORT only remembers a token for gRPC there")
    ] = None,
    token: Annotated[str | None, typer.Option(help="sent to that address only")] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure/--verify", help="whether any certificate of the server's will do")
    ] = None,
) -> None:
    """Remember a server, in a file that only you can read; without one, commands run on this machine."""
    call = invocation(context)
    given = {"base_url": base_url, "token": token, "verify_tls": None if insecure is None else not insecure}
    changes = {**call.flags, **{name: value for name, value in given.items() if value is not None}}
    if all(value is None for value in changes.values()):
        raise InvalidInputError("nothing to remember: give --base-url, --token or --insecure")
    url = changes.get("base_url")
    if url is not None and not url.startswith(("http://", "https://", GRPC_SCHEME)):
        raise InvalidInputError(f"--base-url {url!r} must start with http://, https:// or grpc://")
    path = save_connection(changes)
    call.output().say(f"saved in {path}", {"path": str(path)})
