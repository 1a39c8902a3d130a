"""``debug-server configure``: saves which server to use."""

from __future__ import annotations

import pwd
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from debug_server.client.connection import GRPC_SCHEME, forget_connections, save_server_settings, saved_settings
from debug_server.errors import InvalidInputError
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.first_contact import make_contact
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.output import print_notice
from debug_server.surfaces.cli.token_input import TokenFileOption, TokenOption, given_token

app = CommandsApp()


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
    insecure: Annotated[
        bool | None, typer.Option("--insecure/--verify", help="accept any certificate, or only a valid one")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="forget every server and token")] = False,
) -> None:
    """Save a server in a file that only you can read. Without a saved server, commands run on this machine.

    The address and the token are tried first. If the server does not answer, they are saved all the same; an address
    or a token that is wrong is not.
    """
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
    _check(changes)
    if (changes.get("base_url") or "").startswith(GRPC_SCHEME):
        path = save_server_settings(changes)
        text = f"saved in {path} for the gRPC server {changes['base_url']}; for other commands, give an http:// address"
        call.output().result(text, {"path": str(path)})
        return
    wanted = saved_settings(changes)
    contact = make_contact(wanted)
    path = save_server_settings(changes)
    if contact.problem is not None:
        print_notice(f"{contact.problem}; saved all the same")
    known = "" if contact.you is None else f": {wanted.server} answers, and you are {contact.you}"
    facts = {"path": str(path), "server": wanted.server, "you": contact.you, "problem": contact.problem}
    call.output().result(f"saved in {path}{known}", facts)


def _check(changes: Mapping[str, Any]) -> None:
    """InvalidInputError for an address of no known scheme, and for a gRPC address with nothing to save for it."""
    url = changes.get("base_url")
    if url is None:
        return
    if not url.startswith(("http://", "https://", GRPC_SCHEME)):
        example = f": write http://{url}" if "://" not in url else ""
        raise InvalidInputError(f"--base-url {url!r} must start with http://, https:// or grpc://{example}")
    if not url.startswith(GRPC_SCHEME):
        return
    if urlsplit(url).path not in ("", "/"):
        raise InvalidInputError(f"--base-url {url!r} must be grpc://HOST:PORT, without a path")
    if changes.get("token") is None and changes.get("server_uid") is None:
        raise InvalidInputError(
            f"--base-url {url!r} is a gRPC address, for which only a token or --server-user can be saved: add --token "
            "-, or give the server's http:// address, which commands use"
        )


def _uid(user: str) -> int:
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise InvalidInputError(f"--server-user {user!r} is not a user of this machine: give a name or uid") from None
