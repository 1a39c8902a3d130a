"""An engine with a bound on the processes and threads of its user: a folder, a user's number, the bound, a count."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import threading
from pathlib import Path

_CAPBSET_DROP, _SYS_ADMIN, _SYS_RESOURCE = 24, 21, 24


def give_up_exceeding() -> None:
    """What this process becomes next may not exceed limits, although it runs as root."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_SYS_ADMIN, _SYS_RESOURCE):
        if libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


def limit(uid: int, most: int) -> None:
    """Begin anew with a bound, which counts what a real user has.

    It does not hold for root or for whoever may exceed limits: so the real user is another, who has nothing else, and
    the capabilities to exceed limits are given up.
    """
    give_up_exceeding()
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    os.setresuid(uid, 0, 0)
    os.execv(sys.executable, [sys.executable, "-m", "tests.engine.exhausted_program", sys.argv[1], *sys.argv[4:]])


def first_refusal() -> threading.Event:
    """Set once a thread or a process could not be created."""
    from debug_server.errors import ResourcesExhaustedError, UnavailableError

    refused = threading.Event()

    def tell(error: ResourcesExhaustedError, *words: str) -> None:
        UnavailableError.__init__(error, *words)
        refused.set()

    setattr(ResourcesExhaustedError, "__init__", tell)  # noqa: B010 - every refusal ends in this error
    return refused


def main(root: Path, count: int) -> None:
    """Submit many commands at once, wait for all, and write down how each ended and whether the engine goes on.

    None ends before one of them was refused a thread or a process: each takes a byte from a pipe that is empty.
    """
    from debug_server.engine import LocalEngine
    from debug_server.runner.spec import CommandSpec
    from tests.running import Bench

    bench = Bench(root, max_concurrency=count)
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    engine.start()
    refused = first_refusal()
    os.mkfifo(bench.workspace / "pipe")
    pipe = os.open(bench.workspace / "pipe", os.O_RDWR)
    spec = CommandSpec(["dd", "if=pipe", "of=/dev/null", "bs=1", "count=1"])
    submitted = [
        engine.submit(session_id=bench.session.id, spec=spec, queue_key="many", key_limit=count) for _ in range(count)
    ]
    was_refused = refused.wait(100.0)
    os.write(pipe, bytes(count + 1))
    ended = [engine.wait(command.id, 200.0) for command in submitted]
    later = engine.wait(engine.submit(session_id=bench.session.id, spec=spec).id, 60.0)
    told = {
        "ended": [[row.status.value, row.exit.reason.value, row.exit.message] for row in ended if row.exit],
        "later": later.status.value,
        "refused": was_refused,
        "check": engine.check(),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    engine.stop(grace=5)
    bench.close()


if __name__ == "__main__":
    if len(sys.argv) > 3:
        limit(int(sys.argv[2]), int(sys.argv[3]))
    main(Path(sys.argv[1]), int(sys.argv[2]))
