"""Board: creates, moves and closes the card files ``kanban/<column>/TASK-*.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from runners.kit.cards import BOARD, Card, card_at, find_card, new_card, with_status
from runners.kit.errors import JobError
from runners.kit.event import Event, changed_paths
from runners.kit.program import run
from runners.kit.text import checked_name, single_line
from runners.kit.tree import Tree


def create(event: Event, tree: Tree) -> Iterator[str]:
    """Create a card in the backlog or in the event's column; an existing card is not changed."""
    column = wanted_column(event, "backlog")
    with tree.lock():
        card = find_card(tree, event.task_id)
        if card:
            yield f"card {card.id} is already in {card.column}"
            return
        card = new_card(event, column)
        tree.write(card.path, card.data)
    yield f"card {card.id} created in {column}"


def move(event: Event, tree: Tree) -> Iterator[str]:
    """Move a card to the event's column; the default is work in progress."""
    yield from _to_column(event, tree, wanted_column(event, "wip"), "moved")


def close(event: Event, tree: Tree) -> Iterator[str]:
    """Move a card to the event's column; the default is done."""
    yield from _to_column(event, tree, wanted_column(event, "done"), "closed")


def update_status(event: Event, tree: Tree) -> Iterator[str]:
    """After a push: write the column of each changed card into its status line."""
    with tree.lock():
        for path in changed_paths(event):
            card = card_at(tree, path)
            if card is None:
                yield f"{single_line(path)} is not a card, or no longer exists"
            elif tree.write(card.path, with_status(card.text, card.column).encode("utf-8", "surrogateescape")):
                yield f"card {card.id} is in {card.column}, status written"
            else:
                yield f"card {card.id} is in {card.column}"


def _to_column(event: Event, tree: Tree, column: str, done: str) -> Iterator[str]:
    with tree.lock():
        card = find_card(tree, event.task_id)
        if card is None:
            raise JobError(f"no card {event.task_id!r} below {BOARD}/: create it first")
        moved = Card(id=card.id, column=column, file=card.file, text=with_status(card.text, column))
        # Move first: after a crash in between, the card is in one column and the next run writes its status.
        if card.column != column:
            tree.move(card.path, moved.path)
        changed = tree.write(moved.path, moved.data)
    if card.column != column:
        yield f"card {card.id} {done} from {card.column} to {column}"
    else:
        yield f"card {card.id} is already in {column}{', status written' if changed else ''}"


def wanted_column(event: Event, default: str) -> str:
    """The column in the event's payload, or the new value of its field ``column`` or ``status``."""
    column = event.details.get("column")
    if column is None and event.field in ("column", "status"):
        column = event.plain.strip()
    if column is not None and not isinstance(column, str):
        raise JobError(f"the column is a {type(column).__name__}, not a string")
    return checked_name(column, "column").lower() if column else default


if __name__ == "__main__":
    sys.exit(run("board", {"card.create": create, "card.move": move, "card.close": close}, on_push=update_status))
