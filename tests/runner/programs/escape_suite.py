"""Every escape as another user. Usage: escape_suite.py ROOT CONTAINMENT UID [CGROUP_DIRECTORY...].

Moves into the control groups that were delegated to it, drops its rights, runs every artist to every end and prints
what went wrong as JSON, with the mechanism that was in force.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.runner.escapes import escape_all
from tests.running import Bench


def main() -> None:
    """As somebody else from here on."""
    root, containment, uid = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    for directory in sys.argv[4:]:
        Path(directory, "cgroup.procs").write_text(str(os.getpid()))
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.chdir(root)
    bench = Bench(root / "bench", containment)
    try:
        wrong = escape_all(bench)
        capabilities = bench.supervisor.pool.capabilities
    finally:
        bench.close()
    json.dump({"wrong": wrong, "mechanism": capabilities.mechanism, "user": os.geteuid()}, sys.stdout)


if __name__ == "__main__":
    main()
