"""A container engine's command line. Its daemon is a thread of the test: a container is in no tree of ours.

State lies in the folder DOCKER_CONFIG: ``NAME.ask`` is a request of the client's, ``NAME`` the container's pid.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(argv: list[str]) -> int:
    """run or rm."""
    state = Path(os.environ["DOCKER_CONFIG"])
    if (state / "down").exists():
        sys.stderr.write("Cannot connect to the Docker daemon at unix:///nowhere. Is the docker daemon running?\n")
        return 125
    return remove(state, argv[-1]) if argv[0] == "rm" else run(state, argv[1:])


def run(state: Path, argv: list[str]) -> int:
    """Have it started, and wait for it."""
    (state / "argv").write_text(json.dumps(argv))
    options = {argv[at]: argv[at + 1] for at in range(len(argv) - 1) if argv[at] in ("--name", "--cidfile")}
    place = state / options["--name"]
    draft = place.with_suffix(".draft")
    draft.write_text(json.dumps(argv[argv.index("the-image") + 1 :]))
    Path(options["--cidfile"]).write_text("f" * 64)
    draft.rename(place.with_suffix(".ask"))
    while place.with_suffix(".ask").exists() or place.exists():
        time.sleep(0.01)
    return 0


def remove(state: Path, name: str) -> int:
    """Kill it; what its client has asked for before is done first, as an engine's daemon would."""
    while (state / name).with_suffix(".ask").exists():
        time.sleep(0.01)
    try:
        os.killpg(int((state / name).read_text()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        sys.stderr.write(f"Error: No such container: {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
