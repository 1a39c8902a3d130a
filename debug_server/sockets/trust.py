"""Whose server is spoken to: on this machine another user may have taken the port.

Every connection that no certificate proves is judged once, when it is made and before anything is sent, token or not.
Used by clients, by callbacks of tasks and by checks of workers.
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
_CONFIGURE = "run `debug-server configure --base-url {place} --server-user {uid}` or set DEBUG_SERVER_UID={uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedServer:
    """Whose server may be spoken to on this machine: this user's, root's, and that of ``uid``."""

    uid: int | None = None
    advice: str = _CONFIGURE  # how to name that user; with {place} and {uid}

    def require(self, connected: socket.socket, place: str) -> None:
        """AccessError when the other end is on this machine and not proved to be a trusted user's.

        ConnectionResetError when the connection is over already. ``place`` is scheme, host and port, for the sentence.
        """
        try:
            uid = serving_user(connected)
        except LookupError as error:
            raise AccessError(
                f"whose server {place} is cannot be told ({error}): nothing was sent. Use its address on the "
                "machine or in the container where it listens, or HTTPS with a certificate that is verified"
            ) from error
        if uid is not None and uid not in (os.geteuid(), _ROOT, self.uid):
            raise AccessError(
                f"{place} is served by user {_name(uid)}, not by you or root: nothing was sent. If it is the one you "
                f"mean, {self.advice.format(place=place, uid=uid)}"
            )


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


class HttpTrust:
    """The same for one client of httpx: its ``hook`` (or ``async_hook``) goes into the client's hooks for requests.

    httpx tells of each new connection (its ``trace`` extension) before TLS and before the request.
    """

    def __init__(self, trusted: TrustedServer, lost: type[Exception]) -> None:
        """``lost`` is what this client raises for a connection that was closed."""
        self._trusted = trusted
        self._lost = lost
        self._has_judged = False
        self.refusal: AccessError | None = None

    def hook(self, request: Any) -> None:
        """Judge the connection that is made for this request, if one is."""
        place = _place(request)

        def trace(event: str, facts: Mapping[str, Any]) -> None:
            if self._concerns(event):
                stream = facts["return_value"]
                try:
                    self._judge(stream, place)
                except Exception:
                    stream.close()
                    raise

        request.extensions["trace"] = trace

    async def async_hook(self, request: Any) -> None:
        """The same where nothing may block."""
        place = _place(request)

        async def trace(event: str, facts: Mapping[str, Any]) -> None:
            if self._concerns(event):
                stream = facts["return_value"]
                try:
                    await asyncio.to_thread(self._judge, stream, place)
                except BaseException:
                    await stream.aclose()
                    raise

        request.extensions["trace"] = trace

    def _concerns(self, event: str) -> bool:
        if event.endswith(".connect_tcp.complete"):
            return True
        if not self._has_judged and event.endswith(".send_request_headers.started"):
            raise AccessError("this version of httpx does not tell of its connections: nothing was sent")
        return False

    def _judge(self, stream: Any, place: str) -> None:
        try:
            self._trusted.require(stream.get_extra_info("socket"), place)
        except ConnectionResetError as error:
            raise self._lost(str(error)) from error
        except AccessError as error:
            self.refusal = error
            raise
        self._has_judged = True


def _place(request: Any) -> str:
    parts = urlsplit(str(request.url))
    return f"{parts.scheme}://{parts.netloc}"
