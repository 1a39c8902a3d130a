"""A server with a worker, to be killed: ``python -m tests.workers.host ROOT KIND SECONDS`` prints the worker's pid."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.running import Bench
from tests.workers.supervising import READY_LINE, shake_hands, spec, supervised, timing
from tests.workers.test_supervision import HANDSHAKE


async def main(root: Path, kind: str) -> None:
    """Until it is killed."""
    bench = Bench(root)
    readiness = HANDSHAKE if kind == "mute" else READY_LINE
    worker_spec = spec(bench, kind, readiness=readiness, timing=timing(orphan_timeout=float(sys.argv[3])))
    async with supervised(bench, worker_spec, handshakes={"echo": shake_hands}) as workers:
        assert await workers.pick("echo").wait_for_ready(60)
        sys.stdout.write(f"{workers.pick('echo').status()['pid']}\n")
        sys.stdout.flush()
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
