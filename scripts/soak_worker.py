"""Kills a supervised worker at random moments, many times; status 1 when a process is left or a count is wrong."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.running import TAG, Bench, rooted_in
from tests.workers.soak import campaign


def main() -> int:
    """Run one soak."""
    parser = argparse.ArgumentParser(prog="soak_worker", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="debug-server-soak-") as name:
        os.environ[TAG] = name
        bench = Bench(Path(name) / "bench")
        began = time.monotonic()
        tally = asyncio.run(campaign(bench, options.kills, options.seed))
        bench.close()
        left = _left(name)
        print(f"seed {options.seed}: {time.monotonic() - began:.1f} s, {tally}, left: {left}", flush=True)
    exact = tally.kills == tally.restarts == tally.counted == tally.changes["exit"] - 1
    return int(bool(tally.wrong or left or not exact))


def _left(root: str) -> list[tuple[int, str]]:
    deadline = time.monotonic() + 10
    while (found := rooted_in(Path(root), f"{TAG}={root}")) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


if __name__ == "__main__":
    sys.exit(main())
