"""Commands of all sessions, as ``ps`` and ``history`` show them."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from debug_server.client import calls
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.output import Column, age_text
from debug_server.surfaces.cli.paging import NEWEST, Part, read_part


def where_text(row: Any) -> str:
    """What asked for a command, else its repository, else its directory."""
    if row.subject is not None:
        return str(row.subject)
    if row.repository is not None:
        return str(row.repository)
    if row.directory is None:
        return "-"
    path, home = Path(row.directory), Path.home()
    if path == Path.cwd():
        return path.name or str(path)
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


ID: Column = ("id", lambda row: row.id)
STATUS: Column = ("status", lambda row: row.status)
SESSION: Column = ("session", lambda row: row.session_id)
WHERE: Column = ("where", where_text)
COMMAND: Column = ("command", lambda row: shlex.join(row.command))


def find(
    backend: Backend,
    *,
    status: list[str],
    repo: str | None,
    session: int | None,
    after: int,
    limit: int,
    every: bool,
) -> Part:
    """Commands of all sessions, newest first."""
    request = partial(calls.find_commands, status=status, repository=repo, session_id=session, order=NEWEST)
    return read_part(backend, request, after=after, limit=limit, every=every)


def waiting_text(row: Any) -> str:
    """What a waiting command waits for."""
    return f"waits for {', '.join(map(str, row.waits_for))}" if row.waits_for else "waits for a free slot"


def seconds_since(moment: datetime) -> float:
    """The seconds from a moment to now; 0 if the clocks of server and client differ."""
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())


def age_of(row: Any) -> str:
    """For how long a command has run, or has waited."""
    return age_text(seconds_since(row.started_at or row.created_at))


def duration_of(row: Any) -> str | None:
    """For how long an ended command ran; None if it never started."""
    if row.started_at is None or row.finished_at is None:
        return None
    return age_text(max(0.0, (row.finished_at - row.started_at).total_seconds()))
