"""A command that is checked and encoded before the transaction that inserts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from debug_server.errors import InvalidInputError
from debug_server.model import CommandPlan, CommandStatus, Limits, check_name
from debug_server.store.command_rows import argv_text, check_environment, limits_text, plan_text
from debug_server.store.encoding import encode, mapping_text


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDraft:
    """The values of a new row; the tuples are columns in the order of the INSERT."""

    env: Mapping[str, str]
    stdin_text: str | None
    columns_before_env: tuple[object, ...]
    state_columns: tuple[object, ...]
    queue_key: str | None
    columns_after_key: tuple[object, ...]
    max_pending: int | None  # limit of waiting commands; None for one that is claimed at once
    key_max_pending: int | None
    in_turn: bool  # claim it only if it could start now
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
        key_max_pending: int | None = None,
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
    ) -> CommandDraft:
        """The arguments of ``store.commands.add``."""
        env = env or {}
        check_environment(env)
        if cwd is not None and "\0" in cwd:
            raise InvalidInputError(f"cwd {cwd!r} must not contain NUL characters")
        if key_limit < 1:
            raise InvalidInputError(f"key_limit {key_limit} must be at least 1")
        text = mapping_text(metadata, what="command metadata")
        attempt = 0 if claim_owner is None else 1
        name, bounds = check_name(log_name, what="log name"), "{}" if limits is None else limits_text(limits)
        return cls(
            env=env,
            stdin_text=stdin_text,
            columns_before_env=(argv_text(argv), cwd, encode(sorted(env)) if env else "[]"),
            state_columns=(name, bounds, CommandStatus.PENDING.value, attempt, claim_owner, priority),
            queue_key=queue_key,
            columns_after_key=(
                key_limit,
                order_key,
                int(tty),
                idempotency_key,
                subject,
                text,
                plan_text(plan or CommandPlan()),
            ),
            max_pending=max_pending if claim_owner is None or in_turn else None,
            key_max_pending=key_max_pending,
            in_turn=in_turn and claim_owner is not None,
            key_limit=key_limit if order_key is None else 0,
        )

    def columns_after_env(self, session_id: int) -> tuple[object, ...]:
        """The columns after the sealed environment."""
        return (*self.state_columns, self._key(session_id), *self.columns_after_key)

    def claim_condition(self, session_id: int) -> tuple[object, ...]:
        """The queue key and its limit of active commands; 0 for an order key: such a command is not claimed at once."""
        return self._key(session_id), self.key_limit

    @property
    def waits(self) -> bool:
        """Whether nobody claims it when it is added."""
        return self.state_columns[4] is None

    def unclaimed(self) -> CommandDraft:
        """The same command, not claimed."""
        name, bounds, status, _, _, priority = self.state_columns
        return replace(self, state_columns=(name, bounds, status, 0, None, priority))

    def _key(self, session_id: int) -> str:
        return f"session:{session_id}" if self.queue_key is None else self.queue_key
