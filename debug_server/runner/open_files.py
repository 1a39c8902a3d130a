"""The limit of open files: a server raises its own, commands keep the one it was started with."""

from __future__ import annotations

import resource

_ENOUGH = 1 << 16  # more than the connections that a server takes; some programs close every number below their limit
_RESERVE = 512  # for the store, logs, keepers, git: everything that is not a connection
_CONNECTIONS_AT_MOST = 16_384

_of_commands: int | None = None


def raise_limit() -> None:
    """Raise this process's soft limit towards the hard one, which needs no privilege."""
    global _of_commands
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        _of_commands = soft if _of_commands is None else _of_commands
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit_of_commands() -> int:
    """The soft limit that commands get: this process's own before it was raised."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] if _of_commands is None else _of_commands


def connection_room() -> int:
    """How many connections this process can hold: at least half of its files stay free for everything else."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return _CONNECTIONS_AT_MOST
    return max(1, min(_CONNECTIONS_AT_MOST, soft - min(_RESERVE, soft // 2)))
