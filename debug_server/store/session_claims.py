"""The session_claims table: resources that open sessions hold exclusively or wait for."""

from __future__ import annotations

from collections.abc import Sequence

from debug_server.errors import ConflictError
from debug_server.model import Claim
from debug_server.store.connection import Transaction

# Two resources conflict if they are equal or one is above the other.
_OVERLAP = "({a} = {b} OR substr({a}, 1, length({b}) + 1) = {b} || '/' OR substr({b}, 1, length({a}) + 1) = {a} || '/')"
_TAKEN = (
    "SELECT session_id, resource FROM session_claims AS held WHERE held.waits = 0 AND "
    + _OVERLAP.format(a="held.resource", b="CAST(? AS TEXT)")
    + " ORDER BY session_id LIMIT 1"
)
# A session waits for older ones only, so there is no deadlock.
HELD = (
    "session_claims AS wanted JOIN session_claims AS held"
    " ON held.session_id < wanted.session_id AND held.waits = 1 AND wanted.waits = 1 AND "
    + _OVERLAP.format(a="held.resource", b="wanted.resource")
)
BLOCKED = f"EXISTS (SELECT 1 FROM {HELD} WHERE wanted.session_id = waiting.session_id)"
_INSERT = "INSERT INTO session_claims (session_id, resource, waits) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


def check(transaction: Transaction, claims: Sequence[Claim]) -> None:
    """ConflictError when a resource is taken and its claim does not wait."""
    transaction.lock("claims")
    for claim in claims:
        if claim.waits:
            continue
        row = transaction.one(_TAKEN, (claim.resource,) * _TAKEN.count("?"))
        if row is not None:
            raise ConflictError(f"{claim.resource} is taken: session {row[0]} holds {row[1]} until it is closed")


def insert(transaction: Transaction, session_id: int, claims: Sequence[Claim]) -> None:
    """Record the claims of a new session."""
    for claim in claims:
        transaction.run(_INSERT, (session_id, claim.resource, int(claim.waits)))


def release(transaction: Transaction, session_id: int) -> None:
    """Remove the claims of a session that has ended."""
    transaction.run("DELETE FROM session_claims WHERE session_id = ?", (session_id,))
