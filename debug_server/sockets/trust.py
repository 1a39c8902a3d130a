"""Checks which user runs a server on this machine, because another user may have taken its port.

Every connection without a verified certificate is checked once, when it is made and before anything is sent. Clients,
callbacks of tasks and readiness checks of workers use it.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from debug_server.errors import AccessError
from debug_server.sockets.server import serving_user

_ROOT = 0
_CONFIGURE = "run `debug-server configure --base-url {server} --server-user {uid}` or set DEBUG_SERVER_UID={uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedServerUser:
    """The users whose servers on this machine are trusted: this user, root, and ``uid``."""

    uid: int | None = None
    advice: str = _CONFIGURE  # how to name that user; with {server} and {uid}

    def require(self, connected: socket.socket, server: str) -> None:
        """AccessError if the server is on this machine and is not known to run as a trusted user.

        ConnectionResetError if the connection is closed. ``server`` is scheme, host and port, for the message.
        """
        try:
            uid = serving_user(connected)
        except LookupError as error:
            raise AccessError(
                f"the user who runs the server at {server} cannot be determined ({error}): nothing was sent. Use its "
                "address on the machine or in the container where it listens, or HTTPS with a verified certificate"
            ) from error
        if uid is not None and uid not in (os.geteuid(), _ROOT, self.uid):
            raise AccessError(
                f"{server} is served by user {_name(uid)}, not by you or root: nothing was sent. If you trust that "
                f"server, {self.advice.format(server=server, uid=uid)}"
            )


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


class HttpTrust:
    """The same check for an httpx client: add ``hook`` or ``async_hook`` to its request hooks.

    httpx reports each new connection through its ``trace`` extension, before TLS and before the request.
    """

    def __init__(self, trusted: TrustedServerUser, connection_error: type[Exception]) -> None:
        """``connection_error`` is the client's exception class for a closed connection."""
        self._trusted = trusted
        self._connection_error = connection_error
        self._checked_any = False
        self.refusal: AccessError | None = None

    def hook(self, request: Any) -> None:
        """Check the connection of this request, if a new one is made."""
        server = _origin(request)

        def trace(event: str, facts: Mapping[str, Any]) -> None:
            if self._concerns(event):
                stream = facts["return_value"]
                try:
                    self._check(stream, server)
                except Exception:
                    stream.close()
                    raise

        request.extensions["trace"] = trace

    async def async_hook(self, request: Any) -> None:
        """The same for an asynchronous client: the check runs in a thread."""
        server = _origin(request)

        async def trace(event: str, facts: Mapping[str, Any]) -> None:
            if self._concerns(event):
                stream = facts["return_value"]
                try:
                    await asyncio.to_thread(self._check, stream, server)
                except BaseException:
                    await stream.aclose()
                    raise

        request.extensions["trace"] = trace

    def _concerns(self, event: str) -> bool:
        if event.endswith(".connect_tcp.complete"):
            return True
        if not self._checked_any and event.endswith(".send_request_headers.started"):
            raise AccessError("this version of httpx does not report its connections: nothing was sent")
        return False

    def _check(self, stream: Any, server: str) -> None:
        try:
            self._trusted.require(stream.get_extra_info("socket"), server)
        except ConnectionResetError as error:
            raise self._connection_error(str(error)) from error
        except AccessError as error:
            self.refusal = error
            raise
        self._checked_any = True


def _origin(request: Any) -> str:
    parts = urlsplit(str(request.url))
    return f"{parts.scheme}://{parts.netloc}"
