"""A real writer: appends seeded random writes to a log, then seals it.

Usage: write_log.py LOG SEED COUNT PAUSE_SECONDS
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator

from debug_server.runner.log_format import STDERR, STDOUT, SYSTEM, LogWriter


def writes(seed: int, count: int) -> Iterator[tuple[int, bytes]]:
    """The same for the same seed, so that a test knows what was written."""
    chosen = random.Random(seed)
    for _ in range(count):
        yield chosen.choice((STDOUT, STDERR, SYSTEM)), chosen.randbytes(chosen.choice((1, 3, 80, 5000, 70_000)))


def main() -> None:
    """Write what the arguments ask for."""
    path, seed, count, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    writer = LogWriter(path)
    for stream, data in writes(seed, count):
        writer.write(stream, data)
        time.sleep(pause)
    writer.end()
    writer.close()


if __name__ == "__main__":
    main()
