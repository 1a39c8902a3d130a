"""Runs inside a virtual machine with cgroups of its own: each scenario prints one line ``RESULT name {…}``.

Arguments: the user id to run as. Root works in the root group; another user works in a group of version 2 that root
delegates.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from debug_server.model import Limits
from debug_server.runner.settings import RunnerPaths
from debug_server.runner.spec import CommandResult, CommandSpec
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import open_store

ROOT = Path("/sys/fs/cgroup")
EATER = "x = bytearray(200 << 20); print(len(x))"
PYTHON = (sys.executable, "-I", "-S")
SCARCE = 24 << 20  # of which each page costs the guest a fault, and those are slow there
ESCAPEES = "setsid sleep 300 & (sleep 300 &) ; nohup sleep 300 >/dev/null 2>&1 & trap '' TERM; sleep 300"


class Workspace:
    """A lease of a plain directory."""

    def __init__(self, path: Path) -> None:
        self.path = path


class Guest:
    """The scenarios over one supervisor."""

    def __init__(self, root: Path) -> None:
        self.lease = Workspace(root)
        self.store = open_store(f"sqlite:///{root}/metadata.db")
        self.session = self.store.sessions.create().id
        self.supervisor = WorkerSupervisor(
            metadata_store=self.store, paths=RunnerPaths.from_root(root / "artifacts"), environment_manager=None
        )

    def run(self, *argv: str, **limits: Any) -> CommandResult:
        """One command with limits."""
        return self.supervisor.run_command(self.session, CommandSpec(argv, limits=Limits(**limits)), self.lease)

    def describe(self, result: CommandResult) -> dict[str, Any]:
        """What the test looks at."""
        return {
            "reason": result.exit.reason.value,
            "mechanism": result.exit.mechanism,
            "limits": result.exit.limits,
            "evidence": result.exit.evidence,
            "peak": result.exit.peak_memory_bytes,
            "cpu": result.exit.cpu_seconds,
            "left": sleepers(),
        }

    def capabilities(self) -> dict[str, Any]:
        """What the fork server found."""
        found = self.supervisor.pool.capabilities
        return {"mechanism": found.mechanism, "controllers": sorted(found.controllers)}

    def quick(self) -> dict[str, Any]:
        """A command that just ends."""
        return self.describe(self.run("true", memory_bytes=64 << 20, pids=32, cpus=1.0))

    def memory(self) -> dict[str, Any]:
        """The command itself runs out of memory."""
        return self.describe(self.run(*PYTHON, "-c", EATER, memory_bytes=SCARCE))

    def memory_below_shell(self) -> dict[str, Any]:
        """A grandchild runs out of memory and the shell returns 0."""
        return self.describe(self.run("sh", "-c", f"{' '.join(PYTHON)} -c '{EATER}'; exit 0", memory_bytes=SCARCE))

    def storm(self) -> dict[str, Any]:
        """A fork storm under a pids limit, ended by a timeout."""
        return self.describe(self.run("sh", "-c", "f() { f & f; }; f", pids=24, wall_seconds=4.0))

    def escapees(self) -> dict[str, Any]:
        """Processes that left the session, ended by a timeout."""
        return self.describe(self.run("sh", "-c", ESCAPEES, wall_seconds=1.0))

    def cpu(self) -> dict[str, Any]:
        """CPU time of the whole tree."""
        return self.describe(self.run("sh", "-c", "while :; do :; done & while :; do :; done", cpu_seconds=1.0))

    def keeper_killed(self) -> dict[str, Any]:
        """The keeper dies by SIGKILL while escapees run."""
        results: list[CommandResult] = []
        before = set(self._handles())
        thread = threading.Thread(target=lambda: results.append(self.run("sh", "-c", ESCAPEES)))
        thread.start()
        handle = self._wait_for_handle(before)
        deadline = time.monotonic() + 30
        while not sleepers() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(json.loads(handle.read_text())["keeper"]["pid"], signal.SIGKILL)
        thread.join(60)
        return self.describe(results[0])

    def _handles(self) -> list[Path]:
        return list(self.supervisor.paths.keepers_dir.glob("[0-9]*/handle.json"))

    def _wait_for_handle(self, before: set[Path]) -> Path:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for handle in set(self._handles()) - before:
                return handle
            time.sleep(0.02)
        raise TimeoutError("no handle appeared")


def sleepers() -> int:
    """Live processes called sleep."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        count += "(sleep)" in text and ") Z " not in text
    return count


def leftover_groups() -> list[str]:
    """Groups of commands that were not removed; some go while we look, which only ``os.walk`` takes calmly."""
    return [folder for folder, _, _ in os.walk(ROOT) if Path(folder).name.startswith("debug-server-run-")]


def delegate(uid: int) -> None:
    """As root: give a group to the user and step into it."""
    group = ROOT / "delegated"
    (ROOT / "cgroup.subtree_control").write_text("+cpu +memory +pids")
    group.mkdir()
    for path in [group, *group.iterdir()]:
        os.chown(path, uid, uid)
    (group / "cgroup.procs").write_text(str(os.getpid()))
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def say(name: str, found: dict[str, Any]) -> None:
    """One line for the host."""
    sys.stdout.write(f"RESULT {name} {json.dumps(found)}\n")
    sys.stdout.flush()


def main() -> None:
    """Run every scenario."""
    uid = int(sys.argv[1])
    if uid:
        delegate(uid)
    root = Path(tempfile.mkdtemp(prefix=f"guest-{uid}-"))
    guest = Guest(root)
    scenarios: list[Callable[[], dict[str, Any]]] = [
        guest.capabilities,
        guest.quick,
        guest.memory,
        guest.memory_below_shell,
        guest.storm,
        guest.escapees,
        guest.cpu,
        guest.keeper_killed,
    ]
    for scenario in scenarios:
        try:
            say(f"{scenario.__name__}-{uid}", scenario())
        except Exception:  # noqa: BLE001 - the host reads what went wrong
            say(f"{scenario.__name__}-{uid}", {"error": traceback.format_exc()})
    guest.supervisor.close()
    deadline = time.monotonic() + 60
    while leftover_groups() and time.monotonic() < deadline:
        time.sleep(0.05)
    say(f"leftovers-{uid}", {"groups": leftover_groups()})


if __name__ == "__main__":
    main()
