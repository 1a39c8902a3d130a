"""A session and its one command, checked and encoded, that are not yet in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from debug_server.model import Claim, NewCommand, NewEvent, SessionPlan
from debug_server.store.command_draft import Draft
from debug_server.store.sessions import SessionDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDraft:
    """What can be known before the transaction."""

    command: Draft
    session: SessionDraft
    repository_id: int | None
    claims: Sequence[Claim]
    secrets: Mapping[str, str]  # sealed until ``drop_secrets``
    refused: Callable[[str], NewEvent] | None  # told in its stead when a queue is full; None: QueueFullError

    @classmethod
    def of(
        cls,
        *,
        session_plan: SessionPlan | None = None,
        session_metadata: Mapping[str, Any] | None = None,
        repository_id: int | None = None,
        requested_by: str | None = None,
        owner_token_id: int | None = None,
        claims: Sequence[Claim] = (),
        secrets: Mapping[str, str] | None = None,
        refused: Callable[[str], NewEvent] | None = None,
        **command: Unpack[NewCommand],
    ) -> RunDraft:
        """A session, and what is said of its command."""
        return cls(
            command=Draft.of(**command),
            session=SessionDraft.of(
                repository_id=repository_id,
                requested_by=requested_by,
                owner_token_id=owner_token_id,
                plan=session_plan,
                metadata=session_metadata,
            ),
            repository_id=repository_id,
            claims=claims,
            secrets=secrets or {},
            refused=refused,
        )
