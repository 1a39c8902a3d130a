"""Encodes a command into a row, and decodes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache

from debug_server.errors import ConflictError, InvalidInputError
from debug_server.model import Command, CommandPlan, CommandStatus, ExitReason, ExitRecord, Limits
from debug_server.store.connection import Row
from debug_server.store.encoding import decode, encode, mapping_from, moment, optional_moment

COLUMNS = (
    "id, session_id, sequence, argv, cwd, env_names, log_name, limits, status, attempt, owner, priority, queue_key,"
    " key_limit, tty, cancel_requests, idempotency_key, metadata, log_path, exit_code, exit_reason, exit_record,"
    " created_at, updated_at, started_at, finished_at, subject, plan"
)

_STATUSES = {status.value: status for status in CommandStatus}
_REASONS = {reason.value: reason for reason in ExitReason}
_EXIT_DEFAULTS = {
    item.name: item.default_factory() if item.default_factory is not MISSING else item.default
    for item in fields(ExitRecord)
}


def command_from(row: Row, exit_record: ExitRecord | None = None) -> Command:
    """The command in a row that was selected with COLUMNS; pass ``exit_record`` to avoid decoding it."""
    if exit_record is None and row[21] is not None:
        exit_record = ExitRecord.from_json(decode(row[21]))
    return Command(
        id=row[0],
        session_id=row[1],
        sequence=row[2],
        argv=tuple(decode(row[3])),
        cwd=row[4],
        env_names=() if row[5] == "[]" else tuple(decode(row[5])),
        log_name=row[6],
        limits=_limits_from(row[7]),
        status=_STATUSES[row[8]],
        attempt=row[9],
        owner=row[10],
        priority=row[11],
        queue_key=row[12],
        key_limit=row[13],
        tty=bool(row[14]),
        cancel_requested=bool(row[15]),
        idempotency_key=row[16],
        metadata=mapping_from(row[17]),
        log_path=row[18],
        exit_code=row[19],
        exit_reason=None if row[20] is None else _REASONS[row[20]],
        exit=exit_record,
        created_at=moment(row[22]),
        updated_at=moment(row[23]),
        started_at=optional_moment(row[24]),
        finished_at=optional_moment(row[25]),
        subject=row[26],
        plan=_plan_from(row[27]),
    )


@lru_cache(maxsize=256)
def limits_text(limits: Limits) -> str:
    """The JSON text of limits."""
    return str(encode(limits.requested()))


@lru_cache(maxsize=256)
def _limits_from(text: str) -> Limits:
    """Cached: the value is frozen, and checking it costs more than the rest of the row."""
    return Limits.from_json(decode(text))


@lru_cache(maxsize=256)
def plan_text(plan: CommandPlan) -> str:
    """The JSON text of a plan."""
    return str(encode(plan.to_json()))


@lru_cache(maxsize=256)
def _plan_from(text: str) -> CommandPlan:
    return CommandPlan.from_json(decode(text))


def exit_text(record: ExitRecord) -> str:
    """The JSON text of a record; default values are left out, because smaller rows split fewer pages."""
    values = {name: value for name, default in _EXIT_DEFAULTS.items() if (value := getattr(record, name)) != default}
    try:
        return str(encode(values))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the exit record cannot be stored as JSON ({error})") from error


def argv_text(argv: Sequence[str]) -> str:
    """The JSON text of a checked argument vector."""
    if isinstance(argv, str | bytes) or not argv:
        raise InvalidInputError(f"argv {argv!r} must be a list with at least the name of the program")
    for argument in argv:
        if not isinstance(argument, str) or "\0" in argument:
            raise InvalidInputError(f"argv item {argument!r} must be a string without NUL characters")
    return str(encode(list(argv)))


def check_environment(env: Mapping[str, str]) -> None:
    """InvalidInputError for names and values that no process can receive."""
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise InvalidInputError(f"environment name {name!r} must be a string without '=' and NUL characters")
        if not isinstance(value, str) or "\0" in value:
            raise InvalidInputError(f"the value of environment variable {name} must be a string without NUL characters")


def conflict(row: Row, attempt: int, owner: str, action: str) -> ConflictError:
    """The error for a compare-and-set that failed: it names the current state of the row."""
    command = command_from(row)
    return ConflictError(
        f"command {command.id} cannot be {action} by owner {owner!r} in attempt {attempt}:"
        f" it is {command.status}, attempt {command.attempt}, owner {command.owner!r}"
    )
