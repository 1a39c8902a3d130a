"""Disconnects followers at random and kills servers, then checks that every byte arrived once and in order."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main() -> int:
    """Run one campaign: disconnect followers, kill servers, compare the bytes. Status 1 if a byte differs."""
    from tests.soak.follow import Campaign, run

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=200, help="how much the command writes")
    parser.add_argument("--cuts", type=int, default=100, help="how often each follower is disconnected")
    parser.add_argument("--kills", type=int, default=10, help="how often the server is killed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    campaign = Campaign(size=options.mib << 20, cuts=options.cuts, kills=options.kills, seed=options.seed)
    with tempfile.TemporaryDirectory(prefix="debug-server-soak-") as folder:
        found = asyncio.run(run(Path(folder), campaign, spread=True))
    for result in found:
        sys.stdout.write(f"{result}\n")
    return int(not all(result.identical for result in found))


if __name__ == "__main__":
    sys.exit(main())
