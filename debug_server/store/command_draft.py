"""A command that was checked and encoded, and is not yet in a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from debug_server.errors import InvalidInputError
from debug_server.model import CommandPlan, CommandStatus, Limits, check_name
from debug_server.store.command_rows import argv_text, check_environment, limits_text, plan_text
from debug_server.store.encoding import encode, mapping_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What can be known before the transaction; the tuples are columns in their order."""

    env: Mapping[str, str]
    stdin_text: str | None
    before: tuple[object, ...]
    first: tuple[object, ...]
    queue_key: str | None
    rest: tuple[object, ...]
    bound: int | None  # on those that wait; None for one that is claimed from the start
    key_bound: int | None
    in_turn: bool  # claimed only if it is its turn
    key_limit: int

    @classmethod
    def of(
        cls,
        *,
        argv: Sequence[str],
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        log_name: str = "command",
        limits: Limits | None = None,
        priority: int = 0,
        queue_key: str | None = None,
        key_limit: int = 1,
        key_bound: int | None = None,
        order_key: str | None = None,
        stdin_text: str | None = None,
        tty: bool = False,
        idempotency_key: str | None = None,
        subject: str | None = None,
        plan: CommandPlan | None = None,
        metadata: Mapping[str, Any] | None = None,
        claim_owner: str | None = None,
        in_turn: bool = False,
        max_pending: int | None = None,
    ) -> Draft:
        """The arguments of ``store.commands.add``."""
        env = env or {}
        check_environment(env)
        if cwd is not None and "\0" in cwd:
            raise InvalidInputError(f"cwd {cwd!r} must not hold NUL characters")
        if key_limit < 1:
            raise InvalidInputError(f"key_limit {key_limit} must be at least 1")
        text = mapping_text(metadata, what="command metadata")
        attempt = 0 if claim_owner is None else 1
        name, bounds = check_name(log_name, what="log name"), "{}" if limits is None else limits_text(limits)
        return cls(
            env=env,
            stdin_text=stdin_text,
            before=(argv_text(argv), cwd, encode(sorted(env)) if env else "[]"),
            first=(name, bounds, CommandStatus.PENDING.value, attempt, claim_owner, priority),
            queue_key=queue_key,
            rest=(key_limit, order_key, int(tty), idempotency_key, subject, text, plan_text(plan or CommandPlan())),
            bound=max_pending if claim_owner is None or in_turn else None,
            key_bound=key_bound,
            in_turn=in_turn and claim_owner is not None,
            key_limit=key_limit if order_key is None else 0,
        )

    def after(self, session_id: int) -> tuple[object, ...]:
        """The columns behind the sealed environment."""
        return (*self.first, self._key(session_id), *self.rest)

    def turn(self, session_id: int) -> tuple[object, ...]:
        """Its key, and how many may be under way with it; none of those that wait for the one before."""
        return self._key(session_id), self.key_limit

    def unclaimed(self) -> Draft:
        """The same, waiting for somebody to claim it."""
        name, bounds, status, _, _, priority = self.first
        return replace(self, first=(name, bounds, status, 0, None, priority))

    def _key(self, session_id: int) -> str:
        return f"session:{session_id}" if self.queue_key is None else self.queue_key
