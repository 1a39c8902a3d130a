"""The program that soak commands run: it writes bytes that its seed determines, in one of several manners.

Run as ``python -I -S child.py MANNER SEED TOKEN JOURNAL PROGRESS CODE``. The checker imports it for ``pieces``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from _random import Random  # the module `random` would double the start-up time of every child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

Piece = tuple[int, bytes, float]  # descriptor, bytes, pause before them
_SIZES = (1, 7, 80, 80, 1000, 4096, 20_000, 70_000)
_FOR_EVER = 600


def pieces(seed: int) -> list[Piece]:
    """What a child of this seed writes, in order."""
    draw = Random(seed)
    return [_piece(draw) for _ in range(int(draw.random() * 16))]


def _piece(draw: Random) -> Piece:
    size = 1 + int(draw.random() * _SIZES[int(draw.random() * len(_SIZES))])
    pause = draw.random() * 0.03 if draw.random() < 0.4 else 0.0
    return 1 + (draw.random() < 0.35), draw.getrandbits(8 * size).to_bytes(size, "little"), pause


def enter(token: str, journal: str) -> None:
    """Say that this command runs: one line for each time that it is started."""
    fd = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.write(fd, f"{token}\n".encode())
    os.close(fd)


def write(seed: int) -> None:
    """Write everything from this process."""
    for fd, data, pause in pieces(seed):
        time.sleep(pause)
        _write_all(fd, data)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def write_by_descendants(seed: int) -> None:
    """Each piece comes from a grandchild of its own; the next one waits for it."""
    for fd, data, pause in pieces(seed):
        if (child := os.fork()) == 0:
            if (grandchild := os.fork()) == 0:
                time.sleep(pause)
                _write_all(fd, data)
                os._exit(0)
            os.waitpid(grandchild, 0)
            os._exit(0)
        os.waitpid(child, 0)


def escape(seed: int) -> None:
    """Leave a daemon behind: own session, forked twice; some hold the pipes, some do not heed TERM."""
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            _live_on(keep_pipes=bool(seed & 1), heed_term=bool(seed & 6))
        os._exit(0)
    os.waitpid(child, 0)


def _live_on(*, keep_pipes: bool, heed_term: bool) -> NoReturn:
    if not heed_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not keep_pipes:
        for fd in (0, 1, 2):
            os.close(fd)
    time.sleep(_FOR_EVER)
    os._exit(0)


def write_and_hang(seed: int, progress: str) -> None:
    """Write everything, noting how much the pipe has taken, and never end."""
    note = os.open(progress, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    done = {1: 0, 2: 0}
    for fd, data, pause in pieces(seed):
        time.sleep(pause)
        _write_all(fd, data)
        done[fd] += len(data)
        os.pwrite(note, f"{done[1]:10}{done[2]:10}".encode(), 0)
    time.sleep(_FOR_EVER)


def main(arguments: list[str]) -> NoReturn:
    """Become one soak command."""
    manner, seed_text, token, journal, progress, code = arguments
    seed = int(seed_text)
    enter(token, journal)
    if manner == "hang":
        write_and_hang(seed, progress)
    elif manner == "family":
        write_by_descendants(seed)
    else:
        write(seed)
    if manner == "escape":
        escape(seed)
    if manner == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(int(code))


if __name__ == "__main__":
    main(sys.argv[1:])
