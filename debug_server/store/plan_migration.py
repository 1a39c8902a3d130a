"""Schema version 8: moves the engine's data from ``metadata`` to separate columns, and back.

Version 7 kept the engine's data beside the caller's, or the caller's data under the key ``caller``. This module
handles both as plain JSON, without the current classes, which may change later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from debug_server.store.connection import Transaction
from debug_server.store.encoding import encode, mapping_from

Json = dict[str, Any]
_PAGE = 500
_CALLER = "caller"
_EMPTY = '{"version":1}'
_TREE = {"repository", "path", "branch", "cleanup"}
_SPEC = {"require", "stdin", "wrapper", "pre_kill", "secrets", "containers", "relay", "orphan_seconds"}

# Name in the plan -> name in version 7, and a check against a caller's value of the same name.
_SESSION_FACTS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "directory": ("workspace", lambda value: isinstance(value, str)),
    "commit": ("lease_with_first_command", lambda value: isinstance(value, str)),
    "scratch": ("scratch", lambda value: value is True),
    "branch_tree": ("branch_tree", lambda value: isinstance(value, dict) and value.keys() == _TREE),
    "environment": ("environment", lambda value: isinstance(value, dict)),
    "process": ("process", lambda value: isinstance(value, str)),
    "after": ("after", lambda value: isinstance(value, list)),
    "forked_from": ("forked_from", lambda value: isinstance(value, int)),
}
_COMMAND_FACTS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "inline": ("inline", lambda value: value is True),
    "worker": ("worker", lambda value: isinstance(value, dict)),
    "closes_session": ("closes_session", lambda value: value is True),
    "artifacts": ("artifacts", lambda value: isinstance(value, list)),
}
_SESSION_COLUMNS: Mapping[str, Callable[[Any], bool]] = {
    "lease_generation": lambda value: isinstance(value, int),
    "cleanup": lambda value: isinstance(value, dict) and value.keys() == {"attempted", "succeeded", "message"},
    "idempotency_key": lambda value: isinstance(value, str),
}


def split(transaction: Transaction) -> None:
    """Version 7 to 8: fill the new columns from ``metadata``."""
    for number, metadata in _rows(transaction, "sessions"):
        plan = _take_facts(metadata, _SESSION_FACTS)
        columns = {name: metadata.pop(name) for name, fits in _SESSION_COLUMNS.items() if fits(metadata.get(name))}
        caller_metadata = metadata.pop(_CALLER, None)
        kept = {**metadata, **caller_metadata} if isinstance(caller_metadata, dict) else metadata
        transaction.run(
            "UPDATE sessions SET plan = ?, metadata = ?, lease_generation = ?, cleanup = ?, idempotency_key = ?"
            " WHERE id = ?",
            (
                encode(plan),
                encode(kept),
                columns.get("lease_generation"),
                encode(columns["cleanup"]) if "cleanup" in columns else None,
                columns.get("idempotency_key"),
                number,
            ),
        )
    for number, metadata in _rows(transaction, "commands"):
        plan = _take_facts(metadata, _COMMAND_FACTS)
        spec = metadata.pop("spec", None)
        plan |= {name: spec[name] for name in _SPEC & spec.keys()} if isinstance(spec, dict) else {}
        transaction.run(
            "UPDATE commands SET plan = ?, metadata = ? WHERE id = ?", (encode(plan), encode(metadata), number)
        )


def merge(transaction: Transaction) -> None:
    """Version 8 to 7: the facts return to ``metadata``; caller values of the same names go below ``caller``."""
    sql = "SELECT id, metadata, plan, lease_generation, cleanup, idempotency_key FROM sessions WHERE id > ?"
    for number, metadata, plan, generation, cleanup, key in _pages(transaction, sql):
        facts = _restore_facts(mapping_from(plan), _SESSION_FACTS)
        facts |= {} if generation is None else {"lease_generation": generation}
        facts |= {} if cleanup is None else {"cleanup": mapping_from(cleanup)}
        facts |= {} if key is None else {"idempotency_key": key}
        caller_metadata = mapping_from(metadata)
        hidden = {_CALLER: caller_metadata} if caller_metadata.keys() & (facts.keys() | {_CALLER}) else caller_metadata
        transaction.run("UPDATE sessions SET metadata = ? WHERE id = ?", (encode({**hidden, **facts}), number))
    for number, metadata, plan in _pages(transaction, "SELECT id, metadata, plan FROM commands WHERE id > ?"):
        asked = mapping_from(plan)
        facts = _restore_facts(asked, _COMMAND_FACTS) | {"spec": {name: asked[name] for name in _SPEC & asked.keys()}}
        text = encode({**mapping_from(metadata), **facts})
        transaction.run("UPDATE commands SET metadata = ? WHERE id = ?", (text, number))


def _take_facts(metadata: Json, facts: Mapping[str, tuple[str, Callable[[Any], bool]]]) -> Json:
    """Move the facts from ``metadata`` to a plan."""
    found = {new: metadata.pop(old) for new, (old, fits) in facts.items() if fits(metadata.get(old))}
    return {"version": 1, **found}


def _restore_facts(plan: Json, facts: Mapping[str, tuple[str, Callable[[Any], bool]]]) -> Json:
    return {old: plan[new] for new, (old, _) in facts.items() if new in plan}


def _rows(transaction: Transaction, table: str) -> list[tuple[int, Json]]:
    sql = f"SELECT id, metadata FROM {table} WHERE metadata <> '{{}}' AND id > ?"
    return [(number, mapping_from(text)) for number, text in _pages(transaction, sql)]


def _pages(transaction: Transaction, sql: str) -> list[Any]:
    found: list[Any] = []
    while page := transaction.all(f"{sql} ORDER BY id LIMIT {_PAGE}", (found[-1][0] if found else 0,)):
        found += page
    return found


UP = (
    f"ALTER TABLE sessions ADD COLUMN plan TEXT NOT NULL DEFAULT '{_EMPTY}'".replace("{", "{{").replace("}", "}}"),
    "ALTER TABLE sessions ADD COLUMN lease_generation BIGINT",
    "ALTER TABLE sessions ADD COLUMN cleanup TEXT",
    "ALTER TABLE sessions ADD COLUMN idempotency_key TEXT",
    f"ALTER TABLE commands ADD COLUMN plan TEXT NOT NULL DEFAULT '{_EMPTY}'".replace("{", "{{").replace("}", "}}"),
    split,
    "CREATE INDEX sessions_idempotency ON sessions (idempotency_key) WHERE idempotency_key IS NOT NULL",
)
DOWN = (
    merge,
    "DROP INDEX sessions_idempotency",
    "ALTER TABLE commands DROP COLUMN plan",
    "ALTER TABLE sessions DROP COLUMN idempotency_key",
    "ALTER TABLE sessions DROP COLUMN cleanup",
    "ALTER TABLE sessions DROP COLUMN lease_generation",
    "ALTER TABLE sessions DROP COLUMN plan",
)
