"""Tells the processes that a server started (commands, workers, builds) from other processes of the same user.

A command runs as the server's user, so the user alone does not tell whether a caller is one. Each kind of containment
leaves a trace that the command cannot change: a control group, a pid namespace, a keeper above it. The environment
of its first program is read as well; a command can clear that, but not the others.
"""

from __future__ import annotations

import os
from pathlib import Path

from debug_server.runner.environments.build_processes import BUILD_VARIABLE
from debug_server.runner.keeper.containment import GROUP_PREFIX
from debug_server.runner.keeper.linux import stat_fields
from debug_server.runner.keeper.tree import MARKER

_MARKERS = tuple(f"{name}=".encode() for name in (MARKER, BUILD_VARIABLE))
_KEEPER_NAMES = frozenset({"ds-forkserver", "ds-keeper", "ds-init"})


def is_started_by_server(pid: int) -> bool:
    """Whether a process belongs to a command, worker or build of this server or another one.

    True also if that is unknown: the process has ended or hides its files. Traces that this server has too do not
    count, so that a server can run inside a command of another one.
    """
    try:
        return pid != os.getpid() and bool(
            _namespace(pid) != _namespace("self")
            or _groups(pid) - _groups("self")
            or _marks(pid) - _marks("self")
            or _is_below_keeper(pid)
        )
    except (OSError, ValueError):
        return True


def socket_holders(inode: int) -> list[int]:
    """The pids that have the socket open, among processes whose files this user may list."""
    wanted = f"socket:[{inode}]"
    names = os.listdir("/proc")  # noqa: PTH208 - names, not paths
    return [int(name) for name in names if name.isdigit() and _holds(name, wanted)]


def _holds(pid: str, wanted: str) -> bool:
    try:
        folder = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # ended, or another user's
        return False
    try:
        return any(_target(name, folder) == wanted for name in os.listdir(folder))  # noqa: PTH208 - by descriptor
    except OSError:
        return False
    finally:
        os.close(folder)


def _target(name: str, folder: int) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:  # closed meanwhile
        return ""


def _namespace(pid: int | str) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def _groups(pid: int | str) -> set[str]:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    names = {name for line in lines for name in line.split(":", 2)[2].split("/")}
    return {name for name in names if name.startswith(GROUP_PREFIX)}


def _marks(pid: int | str) -> set[bytes]:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {variable for variable in variables if variable.startswith(_MARKERS)}


def _is_below_keeper(pid: int) -> bool:
    server = os.getpid()
    above_server = set(_ancestors(server))
    for found in [pid, *_ancestors(pid)]:
        if found == server:
            return True
        if found in above_server:
            return False
        if Path(f"/proc/{found}/comm").read_text().rstrip("\n") in _KEEPER_NAMES:
            return True
    return False


def _ancestors(pid: int) -> list[int]:
    """Parents up to the first process, nearest first; ProcessLookupError when one of them ends meanwhile."""
    found: list[int] = []
    while True:
        fields = stat_fields(pid)
        if fields is None:
            raise ProcessLookupError(pid)
        pid = int(fields[1])
        if pid <= 0:
            return found
        found.append(pid)
