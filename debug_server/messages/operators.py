"""Tokens, leases, workers, health."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from debug_server.messages.base import Identifier, Items, Reply, Request
from debug_server.messages.sessions import SessionRef


class LeaseReply(Reply):
    """A workspace and its lease."""

    id: int
    repository_id: int
    path: str
    status: str
    commit_sha: str | None
    owner: str | None
    expires_at: datetime | None


class LeaseList(Items[LeaseReply]):
    """A page of workspaces."""


class WorkerList(Items[dict[str, Any]]):
    """A page of supervised long-lived processes."""


class WorkerRef(Request):
    """A declared worker: one of its instances, or all of them."""

    worker: Annotated[str, Field(min_length=1, max_length=128)]
    instance: Annotated[int, Field(ge=0, le=1 << 31)] | None = None


def _one_line(name: str) -> str:
    if not name.isprintable():
        raise ValueError("it contains a line break or another unprintable character")
    return name


class CreateToken(Request):
    """A new access token."""

    name: Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_one_line)]
    scopes: Annotated[list[str], Field(min_length=1, max_length=16)] = Field(
        default_factory=lambda: ["sessions:read", "sessions:write"]
    )
    expires_in: Annotated[float, Field(gt=0, le=3650 * 86400)] | None = None
    quotas: dict[str, Any] = Field(default_factory=dict)


class TokenRef(Request):
    """One token."""

    token_id: Identifier


class TokenReply(Reply):
    """A token; ``token`` is the secret, which is shown only when the token is created."""

    id: int
    name: str
    scopes: list[str]
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    quotas: dict[str, int | float]  # empty: no quotas
    created_at: datetime
    token: str | None = None


class TokenList(Items[TokenReply]):
    """A page of tokens, without secrets."""


class WhoAmI(Reply):
    """The caller as the server sees it."""

    token_id: int | None
    name: str
    scopes: list[str]


class Health(Reply):
    """The results of the checks."""

    ok: bool
    message: str
    checks: dict[str, str]


class DebugAction(SessionRef):
    """An action for the session's debugger."""

    action: Annotated[str, Field(max_length=64)] = "open"
    payload: dict[str, Any] = Field(default_factory=dict)
