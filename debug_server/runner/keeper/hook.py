"""The program that is run beside a command's tree just before the tree is ended."""

from __future__ import annotations

import os

from debug_server.runner.keeper.ladder import spawn_hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.keeper.keeper import Keeper


def start(keeper: Keeper) -> int | None:
    """Its pid; None when there is none, or it could not be started."""
    argv = keeper.orders["pre_kill"]
    if not argv:
        return None
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    pid = spawn_hook(argv, keeper.tree.pids(), write)
    os.close(write)
    if pid is None:
        os.close(read)
        keeper.output.note(f"pre-kill hook {argv[0]!r} could not be started")
        return None
    keeper.loop.watch(read, lambda fd, _: _pump(keeper, fd))
    keeper.tree.beside = pid
    return pid


def _pump(keeper: Keeper, fd: int) -> None:
    try:
        data = os.read(fd, 1 << 16)
    except BlockingIOError:
        return
    if data:
        keeper.output.raw_note(data)
    else:
        keeper.loop.unwatch(fd)
        os.close(fd)
