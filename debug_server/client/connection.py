"""Finds the server to use: from arguments, else variables, else the file that `debug-server configure` writes."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from debug_server.config import load, setting
from debug_server.config.kinds import FLAG, TEXT, Kind
from debug_server.config.load import read_table
from debug_server.disk import owners_of
from debug_server.errors import ConfigurationError
from debug_server.sockets.trust import TrustedServerUser

DEFAULT_BASE_URL = "http://127.0.0.1:8000"
HOME_VARIABLE = "DEBUG_SERVER_HOME"
GRPC_SCHEME = "grpc://"
DEFAULT_GRPC_PORT = 50051
_PORTS = {"http": 80, "https": 443, "grpc": DEFAULT_GRPC_PORT}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _uid(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value


_UID = Kind(expected="a uid, 0 or more", check=_uid, read=int)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The server to use, our token for it, and how to check it; ``base_url`` is None if none is configured."""

    base_url: str | None = setting("The server's base URL.", TEXT, default=None, variable="DEBUG_SERVER_URL")
    token: str | None = setting("The token sent with every request.", TEXT, default=None, variable="DEBUG_SERVER_TOKEN")
    verify_tls: bool = setting(
        "Whether the server's certificate must be valid.", FLAG, default=True, variable="DEBUG_SERVER_VERIFY_TLS"
    )
    server_uid: int | None = setting(
        "The uid of the user that runs a local server, if that is neither you nor root.",
        _UID,
        default=None,
        variable="DEBUG_SERVER_UID",
    )

    @property
    def server(self) -> str | None:
        """The server's URL; the default URL if only a token is set; None: run on this machine, without a server."""
        return self.base_url or (DEFAULT_BASE_URL if self.token else None)

    @property
    def trusted(self) -> TrustedServerUser:
        """The users whose servers on this machine are trusted."""
        return TrustedServerUser(uid=self.server_uid)

    def must_check_user(self, url: str) -> bool:
        """Whether the server's user must be checked, because no certificate is verified."""
        return not (self.verify_tls and url.startswith("https://"))


def config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the settings are kept."""
    home = environ.get(HOME_VARIABLE)
    try:
        return (Path(home).expanduser() if home else Path.home() / ".debug-server") / "config.toml"
    except RuntimeError as error:
        raise ConfigurationError(f"no home folder is known: set {HOME_VARIABLE}") from error


def load_server_settings(flags: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> ServerSettings:
    """From flags, variables and the file; a saved token is used only for the address that it was saved for."""
    saved = _read(config_file(environ))
    loaded = load(ServerSettings, tables=saved.tables, environ=environ, flags=flags)
    used = address(loaded.value.base_url or DEFAULT_BASE_URL)
    found = replace(loaded.value, server_uid=loaded.value.server_uid or saved.users.get(used))
    if loaded.source("token") not in ("default", saved.source):
        return found
    return replace(found, token=saved.tokens.get(used))


def saved_settings(changes: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> ServerSettings:
    """What `save_server_settings` would leave in the file: variables other than the file's folder have no effect."""
    found = load_server_settings(changes, {name: environ[name] for name in (HOME_VARIABLE,) if name in environ})
    return replace(found, base_url=found.base_url or DEFAULT_BASE_URL)


def client_settings(
    base_url: str | None, token: str | None, *, verify_tls: bool | None, server_uid: int | None
) -> ServerSettings:
    """The server of an SDK's client: an argument that is None is looked up, unless both URL and token are given.

    An empty token stands for none.
    """
    flags = {"base_url": base_url, "token": token or None, "verify_tls": verify_tls, "server_uid": server_uid}
    if base_url is not None and token is not None:
        return load(ServerSettings, flags=flags).value
    found = load_server_settings(flags)
    return replace(found, base_url=found.base_url or DEFAULT_BASE_URL, token=None if token == "" else found.token)


def load_grpc_settings(
    target: str,
    flags: Mapping[str, Any],
    environ: Mapping[str, str] = os.environ,
    *,
    own_port: int = DEFAULT_GRPC_PORT,
    own_url: str | None = None,
) -> ServerSettings:
    """The token for the gRPC server at ``host:port``, and the user that may run it.

    ``own_port`` is the gRPC port of this machine's server, and ``own_url`` its HTTP address. A token that was saved for
    ``own_url`` is also sent to ``own_port``. If ``own_url`` is None, the configured server's address takes its place.
    """
    saved = _read(config_file(environ))
    loaded = load(ServerSettings, tables=saved.tables, environ=environ, flags=flags)
    wanted = address(f"{GRPC_SCHEME}{target}")
    names = [wanted]
    if is_loopback(wanted) and urlsplit(wanted).port == own_port:
        port = (
            _port_on_loopback(loaded.value.base_url or DEFAULT_BASE_URL) if own_url is None else urlsplit(own_url).port
        )
        names += [name for name in (*saved.tokens, *saved.users) if port and _port_on_loopback(name) == port]
    if loaded.source("token") in ("default", saved.source):
        chosen = [name for name in names if name in saved.tokens][:1]
        token = saved.tokens[chosen[0]] if chosen else None
    else:
        chosen, token = names, loaded.value.token
    # A saved token is sent only to a server of the user that was saved with it.
    uid = next((saved.users[name] for name in (wanted, *(chosen or names)) if name in saved.users), None)
    return replace(loaded.value, base_url=wanted, token=token, server_uid=loaded.value.server_uid or uid)


def save_server_settings(changes: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Path:
    """Change the saved file, which only its owner can read.

    A new address becomes the default server, with its own token; for a gRPC address only the token is saved.
    """
    path = config_file(environ)
    saved = _read(path)
    url = changes.get("base_url")
    if url is not None:
        address(url)
    is_grpc = url is not None and url.startswith(GRPC_SCHEME)
    kept = load(ServerSettings, tables=saved.tables, flags={**changes, "base_url": None} if is_grpc else changes).value
    base_url = kept.base_url or DEFAULT_BASE_URL
    tokens, users = dict(saved.tokens), dict(saved.users)
    if changes.get("token") is not None:
        tokens[address(url or base_url)] = changes["token"]
    if changes.get("server_uid") is not None:
        users[address(url or base_url)] = changes["server_uid"]
    own = tokens.pop(address(base_url), None)
    # A gRPC address is no address of a server for other commands.
    saved_url = kept.base_url if is_grpc and own is None else base_url
    values = {"base_url": saved_url, "token": own, "verify_tls": kept.verify_tls}
    # JSON strings and booleans are valid TOML.
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items() if value is not None]
    if tokens:
        lines += ["\n[tokens]\n", *(f"{json.dumps(known)} = {json.dumps(token)}\n" for known, token in tokens.items())]
    if users:
        lines += ["\n[server_users]\n", *(f"{json.dumps(known)} = {uid}\n" for known, uid in users.items())]
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(path, "".join(lines))
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}: set {HOME_VARIABLE} to a folder that you can write"
        ) from error
    return path


def forget_connections(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Remove the file: no server, no token. None if there was none."""
    path = config_file(environ)
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be removed: {error.strerror}") from error
    return path


def address(url: str) -> str:
    """Scheme, host and port of a URL: the key of a saved token."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise ConfigurationError(f"the server's address {url!r} is not a URL: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigurationError(f"the server's address {url!r} must look like http://127.0.0.1:8000 or https://HOST")
    host = (parts.hostname or "").lower()
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(known: str) -> bool:
    """Whether a URL's host is this machine."""
    return urlsplit(known).hostname in _LOOPBACK


def _port_on_loopback(url: str) -> int | None:
    """The port of an HTTP address of this machine; None for any other address."""
    known = address(url)
    return urlsplit(known).port if is_loopback(known) and not known.startswith(GRPC_SCHEME) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """The file: its settings, and every token by its address."""

    source: str
    tables: list[tuple[str, Mapping[Any, Any]]]
    tokens: Mapping[str, str]
    users: Mapping[str, int]  # uid by address, for local servers that another user runs


def _read(path: Path) -> _Saved:
    try:
        is_there = stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_there = False
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}: set {HOME_VARIABLE} to a folder that you can write"
        ) from error
    table = dict(read_table(path, owners_of(path))) if is_there else {}
    others = table.pop("tokens", {})
    if not isinstance(others, Mapping) or not all(isinstance(token, str) for token in others.values()):
        raise ConfigurationError(f'{path}: tokens must map addresses to strings: "http://host:8000" = "TOKEN"')
    users = table.pop("server_users", {})
    if not isinstance(users, Mapping) or not all(type(uid) is int for uid in users.values()):
        raise ConfigurationError(f'{path}: server_users must map addresses to uids: "http://localhost:8000" = 1000')
    tokens = {address(url): token for url, token in others.items()}
    if isinstance(own := table.get("token"), str):
        base_url = table.get("base_url")
        tokens[address(base_url if isinstance(base_url, str) else DEFAULT_BASE_URL)] = own
    known = {address(url): uid for url, uid in users.items()}
    return _Saved(source=str(path), tables=[(str(path), table)], tokens=tokens, users=known)


def _write(path: Path, text: str) -> None:
    """Replace the file atomically; mkstemp creates the new file with mode 0600."""
    descriptor, draft = tempfile.mkstemp(prefix=".config-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(draft).replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(draft).unlink()
