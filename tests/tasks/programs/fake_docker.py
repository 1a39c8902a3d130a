"""A container engine's command line: a container is a process of its own that outlives this client.

State lies in the folder FAKE_DOCKER: one file for each container, holding the pid of its process group.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(__file__).resolve().parent / "state"


def main(argv: list[str]) -> int:
    """run or rm."""
    state = Path(os.environ.get("DOCKER_CONFIG", STATE))
    if (state / "down").exists():
        sys.stderr.write("Cannot connect to the Docker daemon at unix:///nowhere. Is the docker daemon running?\n")
        return 125
    if argv[0] == "rm":
        return remove(state, argv[-1])
    return run(state, argv[1:])


def run(state: Path, argv: list[str]) -> int:
    """Start it detached, as the engine's daemon would, and wait for it."""
    (state / "argv").write_text(json.dumps(argv))
    options = {argv[at]: argv[at + 1] for at in range(len(argv) - 1) if argv[at] in ("--name", "--cidfile")}
    start = argv.index("the-image") + 1
    # By a go-between that ends at once: the container is nobody's child here, and in no tree of ours.
    code = "import os,subprocess,sys; p=subprocess.Popen(sys.argv[1:], start_new_session=True); print(p.pid)"
    started = subprocess.run([sys.executable, "-c", code, *argv[start:]], stdout=subprocess.PIPE, check=True, text=True)
    pid = int(started.stdout.splitlines()[-1])
    (state / options["--name"]).write_text(str(pid))
    Path(options["--cidfile"]).write_text("f" * 64)
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] not in "ZX":
        time.sleep(0.01)
    (state / options["--name"]).unlink(missing_ok=True)
    return 0


def remove(state: Path, name: str) -> int:
    """Kill it."""
    try:
        os.killpg(int((state / name).read_text()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        sys.stderr.write(f"Error: No such container: {name}\n")
    (state / name).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
