"""Whether this process works off the queue."""

from __future__ import annotations

from debug_server.service.verbs import Verbs


class QueueVerbs(Verbs):
    """For whoever is the server, or stands in for one; these calls wait."""

    def start(self, *, settle_seconds: float = 0.0) -> None:
        """Take up what earlier processes left, then begin to claim.

        What ended while nobody looked has a moment, ``settle_seconds`` for each command, to be recorded.
        """
        for command_id in self._engine.start():
            self._engine.wait(command_id, settle_seconds)

    def stop(self, *, grace: float = 0.0) -> None:
        """Claim no more, wait up to ``grace`` seconds for what runs, and let it go on under its keepers."""
        self._engine.stop(grace=grace)
