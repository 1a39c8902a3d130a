"""Paged lists: the options ``--after`` and ``--limit``, and the hint for the next page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol, TypeVar

import typer

from debug_server.client.calls import Call
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.output import Column, Output, print_notice

After = Annotated[int, typer.Option(help="continue after this value, which the previous page printed")]
Limit = Annotated[int, typer.Option(help="maximum number of items, up to 1000")]
DEFAULT_LIMIT = 100


class Page(Protocol):
    """A page of a list."""

    @property
    def items(self) -> list[Any]:
        """Its items."""

    @property
    def next_after(self) -> int | None:
        """Where the next one begins; None when this is the last."""


P = TypeVar("P", bound=Page)


def show_page(output: Output, page: Page, columns: Sequence[Column]) -> None:
    """A page as a table, and how to see the next."""
    output.table(page.items, columns)
    if page.next_after is not None:
        print_notice(f"there are more: --after {page.next_after}")


def every_item(backend: Backend, page_after: Callable[[int], Call[P]]) -> list[Any]:
    """The items of all pages."""
    found: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = backend.send(page_after(after))
        found += page.items
        after = page.next_after
    return found
