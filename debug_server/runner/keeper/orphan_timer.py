"""Whether anybody is there for a relaying worker: one that nobody supervises must not run for ever."""

from __future__ import annotations

import math

from debug_server.runner.keeper.control import Control


class OrphanTimer:
    """Notices when no client has been attached for too long."""

    def __init__(self, control: Control, patience: float | None) -> None:
        self._control = control
        self._patience = patience
        self.until = math.inf  # when patience ends, as of the last look

    def over(self, now: float) -> bool:
        """Whether patience has come to its end."""
        if self._patience is None:
            return False
        if any(client.attached for client in self._control.clients.values()):
            self.until = math.inf
        elif self.until == math.inf:
            self.until = now + self._patience
        return now >= self.until
