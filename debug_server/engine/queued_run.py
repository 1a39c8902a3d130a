"""A command in a session of its own, queued in one step: in a plain directory, or in a repository's commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from debug_server.model import Claim, CommandSpec, NewEvent, SessionPlan
from debug_server.runner.settings import RunnerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """What to run, where, and where it stands in the queue."""

    spec: CommandSpec
    place: SessionPlan  # where it runs
    repository_id: int | None = None
    priority: int = 0
    queue_key: str | None = None  # at most key_limit of one key run at a time, at most key_bound wait
    key_limit: int = 1
    key_bound: int | None = None
    order_key: str | None = None  # those of one key run in their order, one at a time
    requested_by: str | None = None
    subject: str | None = None  # of the command's events
    artifacts: Sequence[str] = ()  # patterns of files to keep when it has ended
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of the command
    session_metadata: Mapping[str, Any] = field(default_factory=dict)
    claims: Sequence[Claim] = ()  # what the session has for itself
    secrets: Mapping[str, str] = field(default_factory=dict)  # kept sealed with the session
    owner_token_id: int | None = None
    idempotency_key: str | None = None
    refused: Callable[[str], NewEvent] | None = None  # told in its stead when a queue is full; None: QueueFullError

    def columns(self) -> dict[str, Any]:
        """What the store keeps of it, beside what it keeps of every spec."""
        return {
            "session_plan": self.place,
            "session_metadata": self.session_metadata,
            "repository_id": self.repository_id,
            "requested_by": self.requested_by,
            "owner_token_id": self.owner_token_id,
            "claims": self.claims,
            "secrets": self.secrets,
            "refused": self.refused,
            "priority": self.priority,
            "queue_key": self.queue_key,
            "key_limit": self.key_limit,
            "key_bound": self.key_bound,
            "order_key": self.order_key,
            "subject": self.subject,
            "idempotency_key": self.idempotency_key,
            "plan": self.spec.plan(closes_session=True, artifacts=self.artifacts),
            "metadata": self.metadata,
        }


def spec_columns(spec: CommandSpec, settings: RunnerSettings) -> dict[str, Any]:
    """What the store keeps of a spec."""
    return {
        "argv": spec.argv,
        "cwd": str(spec.cwd) if spec.cwd is not None else None,
        "env": spec.env,
        "log_name": spec.log_name,
        "limits": spec.within(settings.limits).bounds,
        "stdin_text": spec.stdin_text,
        "tty": spec.tty,
        "max_pending": settings.max_pending,
    }
