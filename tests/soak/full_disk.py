"""The campaign on a small disk: commands fill it while others run, servers are killed; each command has its end."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from debug_server.model import CommandStatus, SessionPlan
from debug_server.store import open_store
from tests.small_disk import fill_up, free_bytes
from tests.soak import spawner
from tests.soak.check import Result
from tests.soak.spawner import Spawner

_SIZE = "64m"
_BESIDE = 6  # commands that run while the disk fills
_END_SECONDS = 120.0
_FILL = "cat /dev/zero > ballast; exit 7"
_WRITE = 'i=0; while [ $i -lt 20 ]; do echo "line $i"; sleep 0.05; i=$((i+1)); done; exit 5'


class FullDisk:
    """Database, logs, run directories and workspace share one file system; needs root, for the mount."""

    def __init__(self, root: Path, seed: int, say: Callable[[str], None]) -> None:
        self._root = root / "disk"
        self._root.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={_SIZE},mode=755"]
        subprocess.run(["mount", *options, "tmpfs", str(self._root)], check=True)
        spawner.adoptions(self._root).symlink_to(root / "adopted")  # servers note there that they have started
        self._say, self._draw = say, random.Random(seed)
        self._workspace = self._root / "workspace"
        self._workspace.mkdir()
        self.store = open_store(spawner.database(self._root))
        self._session = self.store.sessions.create(plan=SessionPlan(directory=str(self._workspace))).id
        self._spawner = Spawner(self._root, "auto")
        self._submitted: list[int] = []
        self._kills = 0
        self._violations: list[str] = []

    def fill(self, count: int) -> None:
        """Fill the disk ``count`` times; every other time one server is killed and another started on it."""
        for number in range(count):
            if self._spawner.server is None:
                self._spawner.start_server()
            for _ in range(_BESIDE):
                self._submit(_WRITE)
            filling = self._submit(_FILL)
            self._await(lambda: self.store.commands.get(filling).status is not CommandStatus.PENDING)  # noqa: B023
            self._await(lambda: free_bytes(self._root) < 1 << 20)
            fill_up(self._workspace)
            time.sleep(self._draw.uniform(0.2, 1.0))
            if number % 2:
                self._restart()
            for name in ("ballast", "rest"):
                (self._workspace / name).unlink(missing_ok=True)
            self._say(f"full disks {number + 1}/{count}")

    def _restart(self) -> None:
        """Kill the server; the next one must start before there is room."""
        self._spawner.kill_server()
        self._kills += 1
        fill_up(self._workspace)
        starts = self._starts()
        self._spawner.start_server()
        self._await(lambda: self._starts() > starts)
        if self._starts() == starts:
            self._violations.append(f"server {self._spawner.server} did not start on a full disk")

    def _starts(self) -> int:
        """How many servers have started: each notes what it adopted."""
        path = spawner.adoptions(self._root)
        return len(path.read_text().splitlines()) if path.exists() else 0

    def finish(self) -> None:
        """Let everything come to its end under one more server."""
        for _ in range(2):  # the second recovery removes what a killed keeper should have removed
            if self._spawner.server is None:
                self._spawner.start_server()
            self._await(lambda: not self._unfinished())
            self._spawner.stop_server()

    def check(self) -> Result:
        """Every command has one end, and nothing is left; call after ``finish`` and before ``close``."""
        left = self._spawner.await_empty()
        violations = [*self._violations, *(f"process {pid} is left" for pid in left), *self._commands()]
        violations += [f"{path} is left" for path in spawner.paths(self._root).keepers_dir.rglob("*")]
        rows = [self.store.commands.get(number) for number in self._submitted]
        reasons = Counter(row.exit.reason.value for row in rows if row.exit is not None)
        figures = {
            "full_disk_commands": len(rows),
            "full_disk_server_kills": self._kills,
            "full_disk_reasons": dict(sorted(reasons.items())),
        }
        return Result(figures=figures, violations=violations)

    def close(self) -> None:
        """End what is left of the campaign itself."""
        self.store.close()
        self._spawner.close()
        self._spawner.groups.remove()
        subprocess.run(["umount", "-l", str(self._root)], check=True)

    def _submit(self, text: str) -> int:
        command = self.store.commands.add(
            session_id=self._session, argv=["sh", "-c", text], queue_key="disk", key_limit=_BESIDE + 2
        )
        self._submitted.append(command.id)
        return command.id

    def _await(self, found: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while not found() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _unfinished(self) -> list[int]:
        return [number for number in self._submitted if not self.store.commands.get(number).status.terminal]

    def _commands(self) -> Iterator[str]:
        ends = Counter(event.command_id for event in self.store.events.read(0, 10_000, kind="command.finished"))
        for number in self._submitted:
            row = self.store.commands.get(number)
            if not row.status.terminal or row.exit is None:
                yield f"command {number} is {row.status}, attempt {row.attempt}, owner {row.owner}"
            elif ends[number] != 1:
                yield f"command {number} has {ends[number]} ends"
