"""The arguments with which a command is added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict

from debug_server.model.limits import Limits
from debug_server.model.plans import CommandPlan


class SpecColumns(TypedDict, total=False):
    """What the store keeps of a ``CommandSpec``."""

    argv: Required[Sequence[str]]
    cwd: str | None
    env: Mapping[str, str] | None
    log_name: str
    limits: Limits | None
    stdin_text: str | None
    tty: bool
    plan: CommandPlan | None


class NewCommand(SpecColumns, total=False):
    """Keywords of ``store.commands.add``; ``Draft.of`` has their defaults."""

    priority: int
    queue_key: str | None
    key_limit: int  # how many with the queue_key may be active at once
    key_max_pending: int | None  # how many of them may wait
    order_key: str | None  # commands with the same key run one after the other, in the order in which they were added
    idempotency_key: str | None  # unique in the session: a repeated add returns the first command
    subject: str | None  # carried by its events
    metadata: Mapping[str, Any] | None
    claim_owner: str | None  # owner that claims the command at once, as attempt 1
    in_turn: bool  # with claim_owner: claim it only if nothing waits before it and its key has a free slot
    max_pending: int | None  # how many commands may wait in total
