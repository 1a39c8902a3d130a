"""Emits 1,000 events across 26 repositories, kills the server meanwhile, and proves that each ran once, in order."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.dispatch.stress import emit_and_kill


def main() -> int:
    """Run one campaign; a violation is an AssertionError that says which."""
    parser = argparse.ArgumentParser(prog="soak_dispatch", description=__doc__)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--repositories", type=int, default=26)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds that each runner takes")
    options = vars(parser.parse_args())
    with tempfile.TemporaryDirectory(prefix="debug-server-dispatch-") as folder:
        print(json.dumps(emit_and_kill(Path(folder), **options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
