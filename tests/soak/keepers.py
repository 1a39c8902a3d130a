"""Finding keepers, and killing them."""

from __future__ import annotations

import json
import os
import random
import select
import signal
from pathlib import Path

from debug_server.runner.keeper.linux import is_alive, start_time
from debug_server.runner.keeper.tree import descendants

Identity = tuple[int, int]  # pid, start time
_DEATH_SECONDS = 60.0


def by_handle(keepers_dir: Path) -> list[Identity]:
    """The keepers that have a command, as their handles name them."""
    found = []
    for path in keepers_dir.glob("[0-9]*/handle.json"):
        try:
            handle = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):  # the command ended meanwhile, and its keeper writes the next handle
            continue
        if not handle.get("fenced"):
            found.append((handle["keeper"]["pid"], handle["keeper"]["start_time"]))
    return sorted(found)


def by_parent(root: int) -> list[Identity]:
    """Every child of a fork server below ``root``: keepers at work and keepers that wait."""
    found = []
    below = descendants(root)
    fork_servers = {pid for pid in below if _name(pid) == "ds-forkserver"}
    for pid in below:
        started = start_time(pid)
        if started is not None and _parent(pid) in fork_servers and _name(pid) == "ds-keeper":
            found.append((pid, started))
    return sorted(found)


def kill(identity: Identity) -> bool:
    """End this very process by SIGKILL and wait for its death; False when it was gone already."""
    pid, started = identity
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(pid, started):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        ready, _, _ = select.select([descriptor], [], [], _DEATH_SECONDS)
        return bool(ready)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def kill_one(draw: random.Random, keepers_dir: Path, root: int) -> Identity | None:
    """Kill a keeper, mostly one with a command; None when there was none to kill."""
    candidates = by_handle(keepers_dir) if draw.random() < 0.75 else by_parent(root)
    draw.shuffle(candidates)
    return next((victim for victim in candidates if kill(victim)), None)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text[text.rindex(")") + 2 :].split()[1])
