"""The campaign over workspaces: their users are killed at random, then nothing of theirs may be left."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from debug_server.app import Local
from debug_server.disk import list_mounts
from debug_server.model import WorktreeStatus
from debug_server.runner.environments.layout import Layout
from tests.servers import unmount_below
from tests.soak.check import Result
from tests.soak.spawner import LAST_USER, USER, Spawner
from tests.soak.workspace_setup import WorkspaceSetup

_USERS = 3
_CALM_EVERY = 4  # a while without a kill, so that slow actions end
_SHOWN = 300


class WorkspaceCampaign:
    """One campaign below one root directory."""

    def __init__(self, root: Path, seed: int, say: Callable[[str], None], *, backend: str = "auto") -> None:
        self._setup = WorkspaceSetup(root, backend)
        self._setup.prepare(seed)
        self._spawner = Spawner(root, backend)
        self._draw = random.Random(seed)
        self._say = say
        self._kills = 0
        self._last_status = 0

    def kill_users(self, count: int) -> None:
        """Kill ``count`` users, each a random moment after the last; others take their place."""
        living: list[int] = []
        while self._kills < count:
            while len(living) < _USERS:
                living.append(self._spawner.start(USER))
            calm = self._kills % _CALM_EVERY == 0
            time.sleep(self._draw.uniform(0.5, 2.0) if calm else self._draw.uniform(0, 0.4))
            self._kill(living.pop(self._draw.randrange(len(living))))
            if self._kills % 50 == 0 or self._kills == count:
                self._say(f"workspace users killed {self._kills}/{count}, actions done {sum(self._actions().values())}")
        for pid in living:
            self._kill(pid)

    def _kill(self, pid: int) -> None:
        status = self._spawner.end(pid, signal.SIGKILL)
        if status != -signal.SIGKILL:
            self._say(f"workspace user {pid} had ended with status {status}")
        self._kills += 1

    def finish(self) -> None:
        """Let the last user recover what is left."""
        self._last_status = self._spawner.end(self._spawner.start(LAST_USER))
        self._say("the last user has ended")

    def check(self) -> Result:
        """Look at everything; call after ``finish`` and before ``close``."""
        left = self._spawner.await_empty()
        with self._setup.open() as local:
            violations = [
                *(f"process {pid} is left" for pid in left),
                *(f"violation: {line[:_SHOWN]}" for line in self._setup.violations.read_text().splitlines()),
                *self._rows(local),
                *self._disk(),
            ]
        if text := self._spawner.stderr.read_text():
            violations.append(f"the spawner wrote to stderr: {text}")
        if self._last_status:
            violations.append(f"the last user ended with status {self._last_status}")
        figures: dict[str, Any] = {
            "workspace_user_kills": self._kills,
            "workspace_actions": dict(sorted(self._actions().items())),
        }
        return Result(figures=figures, violations=violations)

    def close(self) -> None:
        """End what is left of the campaign itself."""
        self._spawner.close()
        self._spawner.groups.remove()
        unmount_below(self._setup.root)

    def _actions(self) -> Counter[str]:
        return Counter(self._setup.actions.read_text().split())

    def _rows(self, local: Local) -> Iterator[str]:
        yield from (f"session {row.id} is open" for row in local.sessions.open_sessions())
        yield from (f"command {row.id} is claimed by {row.owner}" for row in local.store.queue.claimed())
        for repository in local.store.repositories.page():
            for row in local.store.worktrees.page(repository.id):
                if row.status is not WorktreeStatus.IDLE:
                    yield f"workspace {row.path} is {row.status} until {row.lease_expires_at}"

    def _disk(self) -> Iterator[str]:
        yield from (f"{mount.target} is mounted" for mount in list_mounts(self._setup.root))
        for pool in self._setup.paths.artifacts_root.glob("worktrees/*/.pool-*"):
            for name in ("building", "uppers", "aside", "trash", "waiting", "scratch"):
                yield from (f"{path} is left" for path in pool.glob(f"{name}/*"))
        for folder in (self._setup.scratch, self._setup.paths.keepers_dir):
            yield from (f"{path} is left" for path in folder.glob("*"))
        layout = Layout(self._setup.paths.environments_dir)
        sealed = {path.name.rpartition(".")[0] for path in layout.seals.glob("*.json")}
        for directory in layout.environments.iterdir():
            if directory.name.rpartition("-")[0] not in sealed:
                yield f"{directory} is half an environment"
        yield from (f"{path} is left" for path in layout.temporaries())
