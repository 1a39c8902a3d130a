"""Takes ports for servers that bind by themselves."""

from __future__ import annotations

import socket

from debug_server.errors import ConfigurationError


def reserve_port(host: str, port: int, *, what: str, remedy: str) -> socket.socket:
    """A socket that is bound and does not listen; ConfigurationError if somebody listens there.

    Others may bind the port beside it until one of them listens: a child that another thread forks keeps a copy of it
    until it calls exec, and a copy of a listener would keep the real one from listening.
    """
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if found.family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind((host, port))
    except (OSError, OverflowError) as error:
        found.close()
        raise ConfigurationError(f"{what} ({bind_failure(error)}): {remedy}") from error
    return found


def bind_failure(error: OSError | OverflowError) -> str:
    """Why a port could not be bound."""
    if isinstance(error, OverflowError):
        return "a port is a number from 0 to 65535"
    return (error.strerror or str(error)).partition(" (")[0]  # its text ends with the address in brackets
