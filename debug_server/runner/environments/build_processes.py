"""Kills every process of a build, including those that left its process group or outlived its builder."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path

# All descendants of a build tool inherit it; its value is the folder being built.
BUILD_VARIABLE = "DEBUG_SERVER_BUILD"
_DEADLINE_SECONDS = 10.0


def kill_build(target: str) -> None:
    """Kill the processes with the variable of the build of ``target``, until there are none."""
    end = time.monotonic() + _DEADLINE_SECONDS
    while time.monotonic() < end:
        marked = _marked(f"{BUILD_VARIABLE}={target}".encode())
        if not marked:
            return
        try:
            _kill(marked, end)
        finally:
            for fd in marked:
                os.close(fd)


def _marked(mark: bytes) -> list[int]:
    """A pidfd for each marked process, opened before its environment is read: the pid cannot be reused in between."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208  (names, not paths)
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            fd = os.pidfd_open(int(name))
        except OSError:
            continue
        try:
            carries = mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile, or another user's
            carries = False
        if carries:
            found.append(fd)
        else:
            os.close(fd)
    return found


def _kill(marked: list[int], end: float) -> None:
    poller = select.poll()
    for fd in marked:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        poller.register(fd, select.POLLIN)
    waiting = set(marked)
    while waiting and time.monotonic() < end:
        for fd, _ in poller.poll(100):
            poller.unregister(fd)
            waiting.discard(fd)
