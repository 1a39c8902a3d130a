"""The result of a command; ``CommandSpec``, re-exported here, says what to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from debug_server.model import CommandSpec, CommandStatus, ExitReason, ExitRecord

__all__ = ["CommandResult", "CommandSpec"]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command."""

    command_id: int
    status: CommandStatus
    exit_code: int | None
    log_path: Path
    exit: ExitRecord = field(kw_only=True)

    @property
    def exit_reason(self) -> ExitReason:
        """Why it ended."""
        return self.exit.reason
