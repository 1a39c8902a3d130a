"""Callers and their permissions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from debug_server.errors import ForbiddenError, InvalidInputError
from debug_server.messages import ADMIN, SCOPES
from debug_server.model import Session, Token
from debug_server.nearest import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whoever sent a request."""

    token_id: int | None
    name: str
    scopes: frozenset[str]
    quotas: Mapping[str, float] = field(default_factory=dict)
    expires_at: datetime | None = None

    @classmethod
    def of(cls, token: Token) -> Caller:
        """The holder of a token."""
        return cls(
            token_id=token.id,
            name=token.name,
            scopes=frozenset(token.scopes),
            quotas=token.quotas,
            expires_at=token.expires_at,
        )

    @property
    def is_admin(self) -> bool:
        """Whether everything is allowed."""
        return ADMIN in self.scopes

    def holds(self, scopes: Collection[str]) -> bool:
        """Whether every scope is held."""
        return self.is_admin or self.scopes.issuperset(scopes)

    def require(self, scopes: Collection[str]) -> None:
        """ForbiddenError unless every scope is held."""
        if not self.holds(scopes):
            missing = [scope for scope in scopes if scope not in self.scopes]
            asked = " ".join(f"--scope {scope}" for scope in scopes)
            raise ForbiddenError(
                f"token {self.name!r} lacks the scope {missing[0]!r}: an admin makes one that has it with "
                f"`debug-server token create NAME {asked}`"
            )

    def may_see(self, session: Session) -> bool:
        """Sessions are visible to their owner and to admins."""
        return self.is_admin or (self.token_id is not None and session.owner_token_id == self.token_id)


def bearer_token(header: str | None) -> str | None:
    """The token in an Authorization header, or in the metadata of that name."""
    scheme, _, secret = (header or "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    return secret.strip() or None


LOCAL = Caller(token_id=None, name="local", scopes=frozenset({ADMIN}))
ANONYMOUS = Caller(token_id=None, name="nobody", scopes=frozenset())


def check_scopes(scopes: Collection[str]) -> tuple[str, ...]:
    """The scopes of a new token."""
    for scope in scopes:
        if scope not in SCOPES:
            meant = nearest(scope, SCOPES)
            hint = f"did you mean {meant!r}?" if meant else f"use some of {', '.join(SCOPES)}"
            raise InvalidInputError(f"unknown scope {scope!r}: {hint}")
    return tuple(dict.fromkeys(scopes))
