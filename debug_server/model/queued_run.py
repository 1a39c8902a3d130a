"""A command in a session of its own, queued in one step: in a plain directory, or in a commit of a repository."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from debug_server.model.claims import Claim
from debug_server.model.command_spec import CommandSpec
from debug_server.model.plans import SessionPlan
from debug_server.model.records import NewEvent
from debug_server.model.request_key import RequestKey


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """What to run, where, and with which place in the queue."""

    spec: CommandSpec
    session_plan: SessionPlan  # where it runs
    repository_id: int | None = None
    priority: int = 0
    queue_key: str | None = None  # of one key at most key_limit run at a time and at most key_max_pending wait
    key_limit: int = 1
    key_max_pending: int | None = None
    order_key: str | None = None  # runs of one key run in order, one at a time
    requested_by: str | None = None
    subject: str | None = None  # of the command's events
    artifacts: Sequence[str] = ()  # patterns of files to keep when it has ended
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of the command
    session_metadata: Mapping[str, Any] = field(default_factory=dict)
    claims: Sequence[Claim] = ()  # what the session holds exclusively
    secrets: Mapping[str, str] = field(default_factory=dict)  # stored sealed with the session
    owner_token_id: int | None = None
    idempotency_key: str | None = None
    request: RequestKey | None = None  # answered by the commit that queues it
    # Makes the event that is stored when the queue is full; None: raise QueueFullError.
    event_if_full: Callable[[str], NewEvent] | None = None
