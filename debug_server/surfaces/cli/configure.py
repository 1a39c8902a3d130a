"""``debug-server configure``: saves which server to use."""

from __future__ import annotations

import pwd
from typing import Annotated

import typer

from debug_server.client.connection import GRPC_SCHEME, forget_connections, save_server_settings
from debug_server.errors import InvalidInputError
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.token_input import TokenFileOption, TokenOption, given_token

app = typer.Typer(add_completion=False)


@app.command()
def configure(
    context: typer.Context,
    base_url: Annotated[
        str | None, typer.Option(help="the server's URL; grpc://HOST:PORT saves a token for a gRPC server")
    ] = None,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    server_user: Annotated[
        str | None, typer.Option(help="the user of a local server, by name or uid, if it is neither you nor root")
    ] = None,
    insecure: Annotated[bool | None, typer.Option("--insecure/--verify", help="accept any certificate")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="forget every server and token")] = False,
) -> None:
    """Save a server in a file that only you can read. Without a saved server, commands run on this machine."""
    call = invocation(context)
    given = {
        "base_url": base_url,
        "token": given_token(token, token_file),
        "verify_tls": None if insecure is None else not insecure,
        "server_uid": None if server_user is None else _uid(server_user),
    }
    changes = {**call.flags, **{name: value for name, value in given.items() if value is not None}}
    if clear:
        if any(value is not None for value in changes.values()):
            raise InvalidInputError("--clear forgets everything: give no other option with it")
        path = forget_connections()
        what = "nothing was saved" if path is None else f"removed {path}"
        call.output().result(f"{what}: commands run on this machine", {"path": None if path is None else str(path)})
        return
    if all(value is None for value in changes.values()):
        raise InvalidInputError("nothing to save: give --base-url, --token -, --server-user, --insecure or --clear")
    url = changes.get("base_url")
    if url is not None and not url.startswith(("http://", "https://", GRPC_SCHEME)):
        raise InvalidInputError(f"--base-url {url!r} must start with http://, https:// or grpc://")
    path = save_server_settings(changes)
    call.output().result(f"saved in {path}", {"path": str(path)})


def _uid(user: str) -> int:
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise InvalidInputError(f"--server-user {user!r} is not a user of this machine: give a name or uid") from None
