"""Runs the pre-kill hook: a program beside a command's tree, just before the tree is ended."""

from __future__ import annotations

import os

from debug_server.runner.keeper import redaction
from debug_server.runner.keeper.loop import Loop
from debug_server.runner.keeper.output import Output
from debug_server.runner.keeper.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from debug_server.runner.keeper.masking import Mask
    from debug_server.runner.keeper.redaction import Redactor


def start(orders: dict[str, Any], tree: Tree, loop: Loop, output: Output) -> int | None:
    """Start the hook and log its output; its pid, or None if there is none or it could not be started."""
    argv = orders["pre_kill"]
    if not argv:
        return None
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    pid = _spawn(argv, tree.pids(), write)
    os.close(write)
    if pid is None:
        os.close(read)
        output.note(f"pre-kill hook {argv[0]!r} could not be started")
        return None
    hide = redaction.new_filter(orders)  # the hook may print the environment of the processes that it examines
    loop.watch(read, lambda fd, _: _pump(fd, loop, output, hide))
    tree.excluded = pid
    return pid


def _pump(fd: int, loop: Loop, output: Output, hide: Mask | Redactor | None) -> None:
    try:
        data = os.read(fd, 1 << 16)
    except BlockingIOError:
        return
    if safe := data if hide is None else hide.feed(data) if data else hide.end():
        output.raw_note(safe)
    if not data:
        loop.unwatch(fd)
        os.close(fd)


def _spawn(argv: list[str], pids: list[int], output_fd: int) -> int | None:
    """Start the hook; its output goes to ``output_fd``."""
    env = {"PATH": os.defpath, "DEBUG_SERVER_PIDS": " ".join(map(str, pids))}
    actions = [(os.POSIX_SPAWN_DUP2, output_fd, 1), (os.POSIX_SPAWN_DUP2, output_fd, 2)]
    try:
        return os.posix_spawnp(argv[0], argv, env, file_actions=actions, setsid=True)
    except OSError:
        return None
