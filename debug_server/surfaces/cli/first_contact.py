"""Asks a server once, before it is saved, whether its address and its token are right."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

from debug_server.client import calls
from debug_server.client.connection import ServerSettings
from debug_server.errors import (
    AccessError,
    ConfigurationError,
    DebugServerError,
    InvalidInputError,
    UnavailableError,
    UnreachableError,
)
from debug_server.messages import WhoAmI

sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # do not import httpx's command line
_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """Who we are to the server, or why that is not known."""

    you: str | None = None
    problem: str | None = None


def make_contact(settings: ServerSettings) -> Contact:
    """Ask the server who we are; raises an error where the address or the token is wrong."""
    try:
        you = _ask(settings)
    except (ConfigurationError, InvalidInputError):
        raise
    except UnavailableError as error:
        return Contact(problem=str(error))
    except AccessError as error:
        if settings.token is not None:
            raise AccessError(f"{error}. Nothing was saved") from error
        return Contact(problem=f"{settings.server} answers, but no token is saved for it: {error}")
    except DebugServerError as error:
        _refuse_path(settings.server or "", error)
        return Contact(problem=f"{settings.server} answers, but not as expected: {error}")
    return Contact(you=f"{you.name} ({', '.join(you.scopes)})")


def _refuse_path(url: str, error: DebugServerError) -> None:
    """InvalidInputError if the address has a path, which is then what is wrong."""
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query:
        root = f"{parts.scheme}://{parts.netloc}"
        raise InvalidInputError(f"nothing answers below {url}: leave the path out: --base-url {root}") from error


def _ask(settings: ServerSettings) -> WhoAmI:
    import httpx

    from debug_server.client.exchange import Exchange, Pause, client_options
    from debug_server.sockets.trust import HttpTrust

    url = settings.server or ""
    exchange = Exchange(calls.who_am_i(), url, _SECONDS, attempts=1)
    trust = HttpTrust(settings.trusted, connection_error=httpx.ConnectError)
    options = client_options(url, settings.token, verify_tls=settings.verify_tls, timeout=_SECONDS, before=trust.hook)
    try:
        with httpx.Client(**options) as http:
            reply = exchange.reply_or_pause(http.request(**exchange.request))
    except AccessError as error:
        if trust.refusal is not None:  # by us: the server is another user's
            raise ConfigurationError(f"{error}. Nothing was saved") from error
        raise
    except httpx.TransportError as error:
        reply = exchange.pause_after_network_error(error)
    if isinstance(reply, Pause):
        raise UnreachableError(f"no answer from {url}")
    return reply
