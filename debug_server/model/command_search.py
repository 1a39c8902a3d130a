"""A search for commands over all sessions, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.model.command import Command, CommandStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSearch:
    """Which commands to find, and in which order; None matches everything."""

    statuses: tuple[CommandStatus, ...] = ()  # empty: of every status
    repository_id: int | None = None
    session_id: int | None = None
    owner_token_id: int | None = None  # of the session
    after: int = 0  # the id of the last command of the previous page
    newest: bool = True  # newest first
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCommand:
    """A command, and where it runs."""

    command: Command
    repository: str | None  # by name
    directory: str | None  # of a run in an existing directory
    requested_by: str | None
