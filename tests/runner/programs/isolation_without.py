"""What a command gets on a machine that forbids user namespaces. Usage: isolation_without.py ROOT CONTAINMENT.

Prints the report card of a command that asks for ``namespace``, what a command is told that requires it, and how many
rows it left.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from debug_server.config import IsolationConfig
from debug_server.errors import UnmetRequirementError
from tests.running import ROOT, Bench


def main() -> None:
    """One command that may be weaker, then those that may not."""
    read = (str(ROOT), os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix))
    bench = Bench(Path(sys.argv[1]), sys.argv[2], isolation=IsolationConfig(elsewhere="namespace", read=read))
    try:
        result = bench.run(["sh", "-c", f"cat {sys.argv[1]}/outside"])
        refusals = []
        for asked in ({"require": ["namespace"]}, {"network": "loopback"}, {"require": ["network=loopback"]}):
            try:
                bench.run(["true"], **asked)
                refusals.append("")
            except UnmetRequirementError as error:
                refusals.append(str(error))
        rows = len(bench.store.commands.in_session(bench.session.id))
    finally:
        bench.close()
    found = {"card": result.exit.isolation, "code": result.exit_code, "refusals": refusals, "rows": rows}
    json.dump(found | {"mechanism": result.exit.mechanism}, sys.stdout)


if __name__ == "__main__":
    main()
