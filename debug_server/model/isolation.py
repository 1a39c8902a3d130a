"""Levels of isolation and network policies, by name; ``runner/isolation.py`` decides what they mean on a machine."""

from __future__ import annotations

from typing import Literal, get_args

from debug_server.errors import InvalidInputError

Level = Literal["none", "process", "namespace"]  # each confines more than the one before
Network = Literal["open", "loopback", "none"]
LEVELS: tuple[str, ...] = get_args(Level)
NETWORKS: tuple[str, ...] = get_args(Network)


def check_isolation(level: str | None, network: str | None) -> None:
    """InvalidInputError for an unknown name; None is the server's default."""
    for what, value, known in (("isolation", level, LEVELS), ("network", network, NETWORKS)):
        if value is not None and value not in known:
            raise InvalidInputError(f"{what} {value!r} is not known: use one of {', '.join(known)}")
