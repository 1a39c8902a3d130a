"""The verbs of the queue: starts and stops the engine of this process."""

from __future__ import annotations

from debug_server.service.verbs import Verbs


class QueueVerbs(Verbs):
    """Called by a server, or by a command line without one; these calls block."""

    def start(self, *, adopt_wait_seconds: float = 0.0) -> None:
        """Recover commands of dead processes, then start to claim.

        Waits up to ``adopt_wait_seconds`` for each adopted command: if it has already ended, its end is then recorded.
        """
        for command_id in self._engine.start():
            self._engine.wait(command_id, adopt_wait_seconds)

    def stop(self, *, grace: float = 0.0) -> None:
        """Stop claiming; wait up to ``grace`` seconds for running commands, then leave them to their keepers."""
        self._engine.stop(grace=grace)
