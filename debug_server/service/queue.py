"""The verbs of the queue: starts and stops the engine of this process."""

from __future__ import annotations

from debug_server.service.verbs import Verbs


class QueueVerbs(Verbs):
    """Called by a server, or by a process in its place; these calls block."""

    def start(self, *, settle_seconds: float = 0.0) -> None:
        """Recover commands of dead processes, then start to claim.

        Waits up to ``settle_seconds`` for each adopted command, so that the end of one that has ended is recorded.
        """
        for command_id in self._engine.start():
            self._engine.wait(command_id, settle_seconds)

    def stop(self, *, grace: float = 0.0) -> None:
        """Stop claiming; wait up to ``grace`` seconds for running commands, then leave them to their keepers."""
        self._engine.stop(grace=grace)
