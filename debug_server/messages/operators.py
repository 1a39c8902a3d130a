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

    worker: Annotated[str, Field(min_length=1, max_length=128, description="The worker's name.")]
    instance: Annotated[int | None, Field(ge=0, le=1 << 31, description="One instance; default: all.")] = None


def _one_line(name: str) -> str:
    if not name.isprintable():
        raise ValueError("it contains a line break or another unprintable character")
    return name


class CreateToken(Request):
    """A new access token."""

    name: Annotated[
        str, Field(min_length=1, max_length=128, description="Whose token it is."), AfterValidator(_one_line)
    ]
    scopes: Annotated[list[str], Field(min_length=1, max_length=16, description="What it permits.")] = Field(
        default_factory=lambda: ["sessions:read", "sessions:write"]
    )
    expires_in: Annotated[float | None, Field(gt=0, le=3650 * 86400, description="Seconds; default: never.")] = None
    quotas: Annotated[dict[str, Any], Field(description="Such as sessions, commands, requests_per_second.")] = Field(
        default_factory=dict
    )


class TokenRef(Request):
    """One token."""

    token_id: Annotated[Identifier, Field(description="The token's id.")]


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

    action: Annotated[str, Field(max_length=64, description="What the debugger is to do.")] = "open"
    payload: Annotated[dict[str, Any], Field(description="Arguments of the action.")] = Field(default_factory=dict)
