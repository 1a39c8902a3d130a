"""Cuts a digest to a number of tokens: what explains a failure stays longest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from debug_server.messages import Digest, Excerpt, FailingTest, FoldedLine, TracebackHead
from debug_server.messages.digest import CHARACTERS_PER_TOKEN

_Item = Excerpt | FailingTest | FoldedLine | TracebackHead
_LISTS: Final = ("failing", "tracebacks", "repeats", "head", "tail")
_DIGITS = 80  # characters that the counts of ``omitted`` may need


def fitted(found: Digest, max_tokens: int) -> Digest:
    """A digest of which nothing was cut yet, as JSON of at most ``max_tokens`` times four characters."""
    room = max_tokens * CHARACTERS_PER_TOKEN
    whole = _counted(found, found.model_copy(update={"head": [], "tail": [], "repeats": []}))
    if found.text is not None and _size(whole) <= room:
        return whole
    kept: dict[str, list[_Item]] = {name: [] for name in _LISTS}
    empty = found.model_copy(update={"text": None, "first_error": None, **kept})
    room -= _size(empty) + _DIGITS
    error = found.first_error
    if error is not None:
        room -= _size(error)
        error = error if room >= 0 else None
    full: set[str] = set()
    for name, item in _by_worth(found):
        if name not in full:
            room -= _size(item) + 1
            if room < 0:
                room += _size(item) + 1
                full.add(name)  # a later one of the same list would leave a gap
                continue
            kept[name].append(item)
    for items in kept.values():
        items.sort(key=lambda item: item.offset)
    elsewhere = _offsets(kept["head"], kept["tail"])
    kept["repeats"] = [item for item in kept["repeats"] if item.offset not in elsewhere]
    kept["repeats"].sort(key=lambda item: -item.count if isinstance(item, FoldedLine) else 0)
    return _counted(found, empty.model_copy(update={"first_error": error, **kept}))


def _by_worth(found: Digest) -> Iterator[tuple[str, _Item]]:
    """Each item with the name of its list: a few of each first, then the rest in turns."""
    lists: dict[str, list[_Item]] = {
        "failing": [*found.failing],
        "tracebacks": [*found.tracebacks],
        "tail": [*reversed(found.tail)],
        "head": [*found.head],
        "repeats": [*found.repeats],
    }
    first = {"failing": 10, "tracebacks": 3, "tail": 10, "head": 3, "repeats": 1}
    pairs = {name: [(name, item) for item in items] for name, items in lists.items()}
    for name, count in first.items():
        yield from pairs[name][:count]
    rest = zip_longest(*(pairs[name][count:] for name, count in first.items()))
    yield from (pair for turn in rest for pair in turn if pair is not None)


def _counted(found: Digest, cut: Digest) -> Digest:
    """The cut digest with the numbers of what it leaves out."""
    seen = (cut.repeats, cut.head, cut.tail)
    shown = found.lines if cut.text is not None else sum(item.count for item in (*cut.head, *cut.tail))
    left_out = {
        "lines": max(0, found.lines - shown),
        "failing": found.failing_count - len(cut.failing),
        "tracebacks": len(found.tracebacks) - len(cut.tracebacks),
        "repeats": len(_offsets(found.repeats) - _offsets(*seen)) if cut.text is None else 0,
    }
    return cut.model_copy(update={"omitted": found.omitted.model_copy(update=left_out)})


def _offsets(*lists: Sequence[_Item]) -> set[int]:
    return {item.offset for items in lists for item in items}


def _size(reply: Digest | _Item) -> int:
    return len(reply.model_dump_json())
