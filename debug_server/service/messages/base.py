"""What every message is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

COMMIT = Field(min_length=1, max_length=255, validation_alias=AliasChoices("commit_sha", "commit"))
Identifier = Annotated[int, Field(ge=1, le=2**62)]
Text = Annotated[str, Field(max_length=131_071)]


class Request(BaseModel):
    """Unknown fields are refused: a typing error must not be ignored."""

    # Built when first used: sixty validators at import would be a fifth of the server's start.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


class OfCommit(Request):
    """One that names a commit, by either name of the field."""

    @model_validator(mode="before")
    @classmethod
    def _named_once(cls, given: object) -> object:
        if isinstance(given, Mapping) and {"commit", "commit_sha"} <= given.keys():
            raise ValueError("commit is another name for commit_sha: give one of them")
        return given


class Reply(BaseModel):
    """A plain value on its way out."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class Nothing(Request):
    """An operation without arguments."""


class Message(Reply):
    """A word of confirmation."""

    message: str


class Page(Request):
    """Part of a list: at most ``limit`` items after the cursor (``next_after``) of the page before."""

    after: Annotated[int, Field(ge=0, le=2**62)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
