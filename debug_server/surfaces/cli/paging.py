"""Lists: the options ``--limit``, ``--all`` and ``--after``, and the hint for the next page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar

import typer

from debug_server.client.calls import Call
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.output import Column, Output, print_notice

Limit = Annotated[int, typer.Option(min=1, metavar="N", help="how many to show")]
All = Annotated[bool, typer.Option("--all", help="show all of them")]
After = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", show_default=False, help="continue after this value, which the page before printed"
    ),
]
DEFAULT_LIMIT = 30
NEWEST = "newest"  # the order of lists on the command line
_MAX_PAGE = 1000


class Page(Protocol):
    """A page of a list."""

    @property
    def items(self) -> list[Any]:
        """Its items."""

    @property
    def next_after(self) -> int | None:
        """Where the next one begins; None when this is the last."""


P = TypeVar("P", bound=Page)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The items of a list from a cursor on, and where the rest begins; None at the end."""

    items: list[Any]
    next_after: int | None = None


def read_part(
    backend: Backend, page_of: Callable[..., Call[P]], *, after: int = 0, limit: int = DEFAULT_LIMIT, every: bool = True
) -> Part:
    """At most ``limit`` items of a list, or every item; ``page_of`` takes ``after`` and ``limit``."""
    return read_pages(lambda **page: backend.send(page_of(**page)), after=after, limit=limit, every=every)


def read_pages(read: Callable[..., Page], *, after: int, limit: int, every: bool) -> Part:
    """The items of as many pages as are needed."""
    found: list[Any] = []
    following: int | None = after
    while following is not None and (every or len(found) < limit):
        page = read(after=following, limit=_MAX_PAGE if every else min(limit - len(found), _MAX_PAGE))
        found += page.items
        following = page.next_after
    return Part(items=found, next_after=following)


def show_part(output: Output, part: Part, columns: Sequence[Column]) -> None:
    """The items as a table, and how to see the others."""
    output.table(part.items, columns, next_after=part.next_after)
    if part.next_after is not None and not output.as_json:
        print_notice(f"there are more: --all, or --after {part.next_after}")
