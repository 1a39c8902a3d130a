"""Cancels tasks at random moments, and kills their server under load; see ``tests/tasks/stress.py``."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.tasks.stress import Findings, cancel_at_random, kill_under_load


def main() -> int:
    """Run what was asked for; the status is 1 when anything was violated."""
    parser = argparse.ArgumentParser(prog="soak_tasks", description=__doc__)
    parser.add_argument("--cancels", type=int, default=500, help="tasks to cancel (default: %(default)s)")
    parser.add_argument("--tasks", type=int, default=2000, help="tasks under killed servers (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=5, help="servers to kill (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the moments of an earlier run")
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    say(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="debug-server-tasks-") as folder:
        found: dict[str, Findings] = {}
        if options.cancels:
            found["cancel"] = cancel_at_random(Path(folder) / "cancel", options.cancels, seed, say)
        if options.tasks:
            found["kill"] = kill_under_load(Path(folder) / "kill", tasks=options.tasks, kills=options.kills, say=say)
    for name, findings in found.items():
        print(json.dumps({"campaign": name, **findings.facts, "violations": findings.violations[:20]}))
    return int(any(findings.violations for findings in found.values()))


if __name__ == "__main__":
    sys.exit(main())
