"""Tests once, when the fork server starts, which of the technologies work on this machine."""

from __future__ import annotations

import os

from debug_server.runner.keeper.linux import clone
from debug_server.runner.sandbox import confine, landlock, seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_VIEW = [["read", "/usr", "/usr"]]


def probe() -> dict[str, Any]:
    """``namespace``: why the level cannot be had here, or None; ``landlock``: its version; ``seccomp``: whether."""
    if seccomp.supported():
        for internet in (True, False):
            seccomp.program(internet=internet)  # made once, for all that are forked from here
    return {
        "namespace": _why_no_namespaces(),
        "landlock": landlock.version(),
        "seccomp": seccomp.supported(),
    }


def _why_no_namespaces() -> str | None:
    plan: dict[str, Any] = {"level": confine.NAMESPACE, "network": "loopback", "view": _VIEW}
    uid, gid = os.geteuid(), os.getegid()
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        try:
            pid = clone(confine.clone_flags(plan))
        except OSError as error:
            return f"user namespaces cannot be created: {os.strerror(error.errno or 0)}"
        if pid == 0:
            _try(plan, uid, gid, write)
        os.close(write)
        write = -1
        said = os.read(read, 1 << 12).decode("utf-8", "replace")
        os.waitpid(pid, 0)
        return said or None
    finally:
        for descriptor in (read, write):
            if descriptor >= 0:
                os.close(descriptor)


def _try(plan: dict[str, Any], uid: int, gid: int, report: int) -> None:
    try:
        confine.enter_view(plan, uid, gid, own_processes=True)
        os._exit(0)
    except OSError as error:
        os.write(report, (error.strerror or str(error)).encode())
    finally:
        os._exit(1)
