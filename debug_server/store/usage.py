"""What one token has in use, for its quotas."""

from __future__ import annotations

from debug_server.store.part import StorePart

_SESSIONS = "SELECT COUNT(*) FROM sessions WHERE owner_token_id = ? AND status IN ('pending', 'running')"
_COMMANDS = (
    "SELECT COUNT(*) FROM commands JOIN sessions ON sessions.id = commands.session_id"
    " WHERE commands.finished_at IS NULL AND sessions.owner_token_id = ?"
)


class Usage(StorePart):
    """Counts of what has not ended."""

    def count_open_sessions(self, token_id: int) -> int:
        """The token's sessions that are open."""
        row = self._one(_SESSIONS, (token_id,))
        return row[0] if row else 0

    def count_unfinished_commands(self, token_id: int) -> int:
        """The commands in the token's sessions that wait or run."""
        row = self._one(_COMMANDS, (token_id,))
        return row[0] if row else 0
