"""The base classes and common fields of messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from debug_server.nearest import nearest

T = TypeVar("T")
COMMIT = Field(
    min_length=1,
    max_length=255,
    validation_alias=AliasChoices("commit_sha", "commit"),
    description="Branch, tag, commit or other ref; HEAD~1 works.",
)
DEFAULT_COMMIT = "HEAD"
Identifier = Annotated[int, Field(ge=1, le=2**62)]
SessionId = Annotated[Identifier, Field(description="The session's id.")]
CommandId = Annotated[Identifier, Field(description="The command's id.")]
Text = Annotated[str, Field(max_length=131_071)]
# Names of extras or of dependency groups, which become arguments of a builder's command line.
DependencyNames = Annotated[
    list[Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]],
    Field(max_length=64),
]


def _decoded(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return base64.b64decode("".join(given.split()), validate=True)  # base64(1) breaks its lines
    except ValueError as error:
        raise ValueError(f"must be base64: {error}") from error


# Bytes, which JSON carries as base64.
Base64 = Annotated[
    bytes,
    Field(max_length=16 << 20),
    BeforeValidator(_decoded),
    PlainSerializer(lambda data: base64.b64encode(data).decode(), return_type=str, when_used="unless-none"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
PATCH = Field(
    max_length=16 << 20, description="A unified diff, applied to the commit; if it is not UTF-8, use patch_base64."
)
PATCH_BASE64 = Field(description="The patch as base64: any bytes.")
MANIFESTS = Field(max_length=64, description="Dependency files to install; none: only Python; default: detected.")
PYTHON = Field(max_length=64, description="Python version of the environment, such as 3.12; system: no environment.")
EXTRAS = Field(description="Extras of the project to install.")
GROUPS = Field(description="Dependency groups of the project to install.")

MAX_METADATA = 1 << 16  # characters of JSON; a page may have a thousand sessions with metadata


def _check_size(value: dict[str, Any]) -> dict[str, Any]:
    if (size := len(json.dumps(value))) > MAX_METADATA:
        raise ValueError(f"it has {size} characters as JSON: the limit is {MAX_METADATA}")
    return value


Metadata = Annotated[
    dict[str, Any], AfterValidator(_check_size), Field(description="Your own facts; stored and returned unchanged.")
]


class Request(BaseModel):
    """A request; unknown fields are refused, so that misspelled ones are not ignored."""

    # Build validators on first use: building sixty at import would take a fifth of the server's start-up time.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)
    may_contain_nul: ClassVar[frozenset[str]] = (
        frozenset()
    )  # fields that may contain NUL: they reach neither a row nor an argument

    @model_validator(mode="before")
    @classmethod
    def _check_names_and_texts(cls, given: object) -> object:
        """Refuse unknown names, and NUL in texts: PostgreSQL cannot store it."""
        if isinstance(given, Mapping):
            known = _names_of(cls)
            if known is not None and (unknown := [str(name) for name in given if name not in known]):
                raise refused(cls, *(fault((name,), "unknown_name", _unknown(name, known)) for name in unknown))
            for name, value in given.items():
                if name not in cls.may_contain_nul and (location := _nul_in(value)) is not None:
                    text = "it contains a NUL character, which cannot be stored"
                    raise refused(cls, fault((str(name), *location), "nul", text))
        return given


def refused(model: type[BaseModel], *faults: InitErrorDetails) -> ValidationError:
    """The error of a message with these faults."""
    return ValidationError.from_exception_data(model.__name__, list(faults))


def fault(location: tuple[int | str, ...], kind: str, text: str) -> InitErrorDetails:
    """The fault of one field."""
    return InitErrorDetails(type=PydanticCustomError(kind, "{text}", {"text": text}), loc=location, input=None)


@cache
def _names_of(model: type[BaseModel]) -> frozenset[str] | None:
    """The names that a message's fields may have; None if it may have any."""
    if model.model_config.get("extra") != "forbid":
        return None
    names = set(model.model_fields)
    for field in model.model_fields.values():
        alias = field.validation_alias
        names |= {str(one) for one in alias.choices} if isinstance(alias, AliasChoices) else {str(alias)} - {"None"}
    return frozenset(names)


# What other programs call these fields.
_OTHER_WORDS = {
    **dict.fromkeys(("command", "cmd", "args", "arguments", "program"), "argv"),
    **dict.fromkeys(("repo", "project"), "repository"),
    **dict.fromkeys(("branch", "ref", "revision", "sha"), "commit"),
    **dict.fromkeys(("directory", "dir", "folder", "workdir", "working_directory"), "cwd"),
    **dict.fromkeys(("environment", "variables"), "env"),
}


def meant_field(name: str, known: Collection[str]) -> str | None:
    """The field that an unknown name stands for: by the words of other programs, or because it resembles the name."""
    other = _OTHER_WORDS.get(name.lower())
    return other if other in known else nearest(name, known)


def _unknown(name: str, known: Collection[str]) -> str:
    if meant := meant_field(name, known):
        return f"unknown field: did you mean {meant!r}?"
    return f"unknown field: use one of {', '.join(sorted(known))}" if known else "unknown field: none is expected here"


def _nul_in(value: object) -> tuple[int | str, ...] | None:
    """The path to a string or key with a NUL inside ``value``; () for ``value`` itself, None if there is none."""
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
        if (location := _nul_in(item)) is not None:
            return (name, *location)
    return None


class CommitRequest(Request):
    """A request with a commit, named ``commit_sha`` or ``commit``, and a patch as text or as base64."""

    may_contain_nul = frozenset({"patch"})

    @model_validator(mode="before")
    @classmethod
    def _refuse_both_names(cls, given: object) -> object:
        if isinstance(given, Mapping) and {"commit", "commit_sha"} <= given.keys():
            raise ValueError("commit is another name for commit_sha: give one of them")
        if isinstance(given, Mapping) and given.get("patch") and given.get("patch_base64"):
            raise ValueError("patch_base64 is the patch in another encoding: give one of them")
        return given


class Reply(BaseModel):
    """A reply; unknown fields of a newer server are ignored."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class Items(Reply, Generic[T]):
    """A page of a list, and an iterable of its items; ``next_after`` is the next page's ``after``, None on the last."""

    items: list[T]
    next_after: int | None = None

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]  # pydantic's is over pairs of names and values
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


Order = Literal["oldest", "newest"]
REPOSITORY = Field(min_length=1, max_length=128, description="The repository's name.")


def _separate(given: object) -> object:
    """The words of texts: a query may have ``status=failed,cancelled``, also several times."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return given
    return [word.strip() for text in texts for word in text.split(",")]


SEPARATED = BeforeValidator(_separate)  # a list that may also be one text with commas


class EmptyRequest(Request):
    """An operation without arguments."""


class Message(Reply):
    """A confirmation."""

    message: str


class PageRequest(Request):
    """Request for a page of a list: at most ``limit`` items after the cursor ``after``."""

    after: Annotated[int, Field(ge=0, le=2**62, description="The cursor: next_after of the page before.")] = 0
    limit: Annotated[int, Field(ge=1, le=1000, description="Most items.")] = 100


class ListRequest(PageRequest):
    """A page of a list in one of two orders; ``after`` is the cursor of that order."""

    order: Annotated[Order, Field(description="Which comes first.")] = "oldest"

    @property
    def newest(self) -> bool:
        """Whether the newest item is the first."""
        return self.order == "newest"
