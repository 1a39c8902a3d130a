"""Kills the gateway's worker again and again under many streams, then proves that every request had one end."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.gateway.worker_kills import run_campaign
from tests.running import carrying, eventually


def main() -> int:
    """Run the campaign; an AssertionError says what does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = run_campaign(Path(folder), kills=options.kills, streams=options.streams, seed=options.seed)
        eventually(lambda: not carrying(folder), 10.0, "no process is left")
    ends = ", ".join(f"{count} {name}" for name, count in sorted(tally.ends.items()))
    print(f"{options.kills} kills under {options.streams} streams in {time.monotonic() - began:.0f} s")
    print(f"{tally.sent} requests, each with one end: {ends}; no process is left, all counters agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
