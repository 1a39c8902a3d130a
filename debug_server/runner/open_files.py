"""The limit of open files: a server raises its own; commands get the original one."""

from __future__ import annotations

import resource

_TARGET = 1 << 16  # more than a server needs; some programs close every descriptor below their limit
_RESERVE = 512  # for everything that is not a connection: store, logs, keepers, git
_MAX_CONNECTIONS = 16_384

_original_soft_limit: int | None = None


def raise_limit() -> None:
    """Raise this process's soft limit towards the hard one, which needs no privilege."""
    global _original_soft_limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _TARGET if hard == resource.RLIM_INFINITY else min(hard, _TARGET)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        _original_soft_limit = soft if _original_soft_limit is None else _original_soft_limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def command_limit() -> int:
    """The soft limit that commands get: this process's own before it was raised."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] if _original_soft_limit is None else _original_soft_limit


def max_connections() -> int:
    """How many connections this process can have: at least half of the limit stays free for other files."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(1, min(_MAX_CONNECTIONS, soft - min(_RESERVE, soft // 2)))
