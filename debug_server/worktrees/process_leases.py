"""Which process holds which lease of a workspace, and which of those processes are dead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from debug_server.disk import ownership
from debug_server.model import Session, Worktree


class ProcessLeases:
    """A lease names the process that holds it. When that process dies, the lease ends unless a session uses it."""

    def __init__(
        self,
        *,
        owners_dir: Path,
        process: Callable[[], str],
        open_sessions: Callable[[], list[Session]] = list,
    ) -> None:
        self._owners = owners_dir
        self._process = process
        self._open_sessions = open_sessions

    @property
    def process(self) -> str:
        """The owner name of this process; its lock is released when the process ends."""
        return self._process()

    def abandoned(self, rows: Sequence[Worktree]) -> list[Worktree]:
        """The leases of dead processes that no open session uses; a process of another data folder counts as alive."""
        dead = [row for row in rows if row.process is not None and self._is_dead(row.process)]
        if not dead:
            return []
        # Read after the processes were found dead: none of them can open a session any more.
        in_use = {(session.worktree_id, session.lease_generation) for session in self._open_sessions()}
        return [row for row in dead if (row.id, row.generation) not in in_use]

    def _is_dead(self, name: str) -> bool:
        return ownership.is_ours(self._owners, name) and not ownership.is_alive(self._owners, name)
