"""The campaign over workspaces: tenants are killed at random, then nothing of theirs may be left."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from debug_server.app import Local
from debug_server.model import WorktreeStatus
from debug_server.runner.environments.layout import Layout
from debug_server.worktrees.mount import list_mounts
from tests.servers import unmount_below
from tests.soak.check import Result
from tests.soak.nursery import LAST_TENANT, TENANT, Nursery
from tests.soak.workplace import Workplace

_TENANTS = 3
_CALM_EVERY = 4  # a while without a kill, so that slow deeds come to their end
_SHOWN = 300


class Tenancy:
    """One campaign below one root directory."""

    def __init__(self, root: Path, seed: int, say: Callable[[str], None], *, backend: str = "auto") -> None:
        self._place = Workplace(root, backend)
        self._place.furnish(seed)
        self._nursery = Nursery(root, backend)
        self._draw = random.Random(seed)
        self._say = say
        self._kills = 0
        self._last_status = 0

    def kill_tenants(self, count: int) -> None:
        """Kill ``count`` tenants, each a random moment after the last; others take their place."""
        living: list[int] = []
        while self._kills < count:
            while len(living) < _TENANTS:
                living.append(self._nursery.bear(TENANT))
            calm = self._kills % _CALM_EVERY == 0
            time.sleep(self._draw.uniform(0.5, 2.0) if calm else self._draw.uniform(0, 0.4))
            self._kill(living.pop(self._draw.randrange(len(living))))
            if self._kills % 50 == 0 or self._kills == count:
                self._say(f"tenant kills {self._kills}/{count}, deeds done {sum(self._deeds().values())}")
        for pid in living:
            self._kill(pid)

    def _kill(self, pid: int) -> None:
        status = self._nursery.end(pid, signal.SIGKILL)
        if status != -signal.SIGKILL:
            self._say(f"tenant {pid} had ended with status {status}")
        self._kills += 1

    def finish(self) -> None:
        """Let the last tenant tidy up."""
        self._last_status = self._nursery.end(self._nursery.bear(LAST_TENANT))
        self._say("the last tenant has left")

    def check(self) -> Result:
        """Look at everything; call after ``finish`` and before ``close``."""
        left = self._nursery.await_empty()
        with self._place.open() as local:
            violations = [
                *(f"process {pid} is left" for pid in left),
                *(f"complaint: {line[:_SHOWN]}" for line in self._place.complaints.read_text().splitlines()),
                *self._rows(local),
                *self._disk(),
            ]
        if text := self._nursery.stderr.read_text():
            violations.append(f"the nursery wrote to stderr: {text}")
        if self._last_status:
            violations.append(f"the last tenant ended with status {self._last_status}")
        figures: dict[str, Any] = {"tenant_kills": self._kills, "deeds": dict(sorted(self._deeds().items()))}
        return Result(figures=figures, violations=violations)

    def close(self) -> None:
        """End what is left of the campaign itself."""
        self._nursery.close()
        self._nursery.groups.remove()
        unmount_below(self._place.root)

    def _deeds(self) -> Counter[str]:
        return Counter(self._place.deeds.read_text().split())

    def _rows(self, local: Local) -> Iterator[str]:
        yield from (f"session {row.id} is open" for row in local.sessions.open_sessions())
        yield from (f"command {row.id} is claimed by {row.owner}" for row in local.store.queue.claimed())
        for repository in local.store.repositories.page():
            for row in local.store.worktrees.page(repository.id):
                if row.status is not WorktreeStatus.IDLE:
                    yield f"workspace {row.path} is {row.status} until {row.lease_expires_at}"

    def _disk(self) -> Iterator[str]:
        yield from (f"{mount.target} is mounted" for mount in list_mounts(self._place.root))
        for pool in self._place.paths.artifacts_root.glob("worktrees/*/.pool-*"):
            for name in ("building", "uppers", "aside", "trash", "waiting", "scratch"):
                yield from (f"{path} is left" for path in pool.glob(f"{name}/*"))
        for folder in (self._place.scratch, self._place.paths.keepers_dir):
            yield from (f"{path} is left" for path in folder.glob("*"))
        layout = Layout(self._place.paths.environments_dir)
        sealed = {path.name.rpartition(".")[0] for path in layout.seals.glob("*.json")}
        for directory in layout.environments.iterdir():
            if directory.name.rpartition("-")[0] not in sealed:
                yield f"{directory} is half an environment"
        yield from (f"{path} is left" for path in layout.temporaries())
