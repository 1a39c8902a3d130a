"""Walks a list page by page: builds the request of each page, and takes its items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from debug_server.client.calls import Call
from debug_server.messages import Items

T = TypeVar("T")
_MAX_PAGE = 1000


class Paging(Generic[T]):
    """The pages of one list, independent of the client that asks for them."""

    def __init__(self, first: Call[Items[T]]) -> None:
        """``first`` is the call of the list; its ``limit`` bounds all pages together, not each of them."""
        self._call = first
        self._left: int | None = first.fields.get("limit")
        self.next_call: Call[Items[T]] | None = self._from(first.fields.get("after"))

    def take(self, page: Items[T]) -> Sequence[T]:
        """The items of the page; then ``next_call`` is the call of the page after it, None if there is none."""
        asked = self.next_call.fields.get("after") if self.next_call is not None else None
        if self._left is not None:
            self._left -= len(page.items)
        # The cursor of a list of events is never None: at the end of the list it stays where it is.
        ended = page.next_after in (None, asked, 0) or (self._left is not None and self._left <= 0)
        self.next_call = None if ended else self._from(page.next_after)
        return page.items

    def _from(self, after: int | None) -> Call[Items[T]]:
        changed: dict[str, Any] = {} if after is None else {"after": after}
        if self._left is not None:
            changed["limit"] = min(self._left, _MAX_PAGE)
        return replace(self._call, fields={**self._call.fields, **changed})
