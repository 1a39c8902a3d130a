"""Programs that want too much. Usage: hog.py KIND [NUMBER]."""

from __future__ import annotations

import os
import sys
import time


def memory(size: int) -> None:
    """Touch so many bytes."""
    kept = bytearray(size)
    for offset in range(0, size, 4096):
        kept[offset] = 1


def cpu(_: int) -> None:
    """Compute for ever."""
    while True:
        pass


def cpu_below(_: int) -> None:
    """Compute for ever, in grandchildren whose own time is short."""
    while True:
        if os.fork() == 0:
            until = time.process_time() + 0.05
            while time.process_time() < until:
                pass
            os._exit(0)
        os.wait()


def file(size: int) -> None:
    """Write one file of so many bytes."""
    with open("big", "wb") as target:
        target.write(bytes(size))


def output(size: int) -> None:
    """Write so many bytes, half to each stream, then stay."""
    for fd in (1, 2):
        data = memoryview(bytes([fd]) * (size // 2))
        while data:
            data = data[os.write(fd, data) :]
    if "--stay" in sys.argv:
        time.sleep(1000)


def processes(count: int) -> None:
    """Start as many as can be had, up to ``count``, once the file ``go`` is there; print how many there were."""
    while not os.path.exists("go"):
        time.sleep(0.01)
    alive = 1
    for _ in range(count):
        try:
            if os.fork() == 0:
                time.sleep(1000)
        except OSError:
            break
        alive += 1
    print(alive)  # noqa: T201 - it is what this program is for


if __name__ == "__main__":
    KINDS = {hog.__name__: hog for hog in (memory, cpu, cpu_below, file, output, processes)}
    KINDS[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 0)
