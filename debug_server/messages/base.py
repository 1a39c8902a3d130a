"""What every message is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

T = TypeVar("T")
COMMIT = Field(min_length=1, max_length=255, validation_alias=AliasChoices("commit_sha", "commit"))
Identifier = Annotated[int, Field(ge=1, le=2**62)]
Text = Annotated[str, Field(max_length=131_071)]
# Names of extras or of dependency groups, which become words of a builder's command line.
PartNames = Annotated[
    list[Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]],
    Field(max_length=64),
]


MAX_METADATA = 1 << 16  # characters of JSON; a page of a list holds a thousand of them


def _bounded(value: dict[str, Any]) -> dict[str, Any]:
    if (size := len(json.dumps(value))) > MAX_METADATA:
        raise ValueError(f"it has {size} characters as JSON: at most {MAX_METADATA} are kept")
    return value


Metadata = Annotated[dict[str, Any], AfterValidator(_bounded)]  # the caller's own facts


class Request(BaseModel):
    """Unknown fields are refused: a typing error must not be ignored."""

    # Built when first used: sixty validators at import would be a fifth of the server's start.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)
    holds_bytes: ClassVar[frozenset[str]] = frozenset()  # fields that no row and no program's argument is made of

    @model_validator(mode="before")
    @classmethod
    def _without_nul(cls, given: object) -> object:
        """One store keeps NUL in a text, another cannot: no field may have it."""
        if isinstance(given, Mapping):
            for name, value in given.items():
                if name not in cls.holds_bytes and (place := _nul_in(value)) is not None:
                    told = PydanticCustomError("nul", "it holds a NUL character, which cannot be stored")
                    found = InitErrorDetails(type=told, loc=(str(name), *place), input=None)
                    raise ValidationError.from_exception_data(cls.__name__, [found])
        return given


def _nul_in(value: object) -> tuple[int | str, ...] | None:
    """Where in a value a text, or a name, has a NUL; the empty place is the value itself."""
    if isinstance(value, str):
        return () if "\0" in value else None
    items: Iterable[tuple[int | str, object]] = ()
    if isinstance(value, Mapping):
        if any(isinstance(name, str) and "\0" in name for name in value):
            return ()
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for name, item in items:
        if (place := _nul_in(item)) is not None:
            return (name, *place)
    return None


class OfCommit(Request):
    """One that names a commit, by either name of the field."""

    @model_validator(mode="before")
    @classmethod
    def _named_once(cls, given: object) -> object:
        if isinstance(given, Mapping) and {"commit", "commit_sha"} <= given.keys():
            raise ValueError("commit is another name for commit_sha: give one of them")
        return given


class Reply(BaseModel):
    """What an operation is answered with; fields that a newer server adds are ignored."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class Items(Reply, Generic[T]):
    """A page of a list; it can be iterated itself. ``next_after`` is the next page's ``after``, None on the last."""

    items: list[T]
    next_after: int | None = None

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]  # pydantic's is over pairs of names and values
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class Nothing(Request):
    """An operation without arguments."""


class Message(Reply):
    """A word of confirmation."""

    message: str


class Page(Request):
    """Part of a list: at most ``limit`` items after the cursor (``next_after``) of the page before."""

    after: Annotated[int, Field(ge=0, le=2**62)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
