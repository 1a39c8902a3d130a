"""Governance: writes the plan and the retro of a sprint from the cards on the board."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from runners.kit import managed_block
from runners.kit.cards import Card, all_cards
from runners.kit.event import Event
from runners.kit.program import run
from runners.kit.text import checked_name
from runners.kit.tree import Tree

FOLDER = "sprints"
FINISHED = ("done", "closed")
PRIORITIES = ("critical", "high", "med", "low")
BEGIN = "<!-- cards: written by the governance runner -->"
END = "<!-- end of cards -->"
HOURS = re.compile(r"(\d+(?:\.\d+)?) *h\b")


def plan(event: Event, tree: Tree) -> Iterator[str]:
    """Write ``sprints/<sprint>-plan.md``: the open cards by priority, with their estimates."""
    cards = _cards_of(event, tree)
    rest = sorted((card for card in cards if card.column not in FINISHED), key=_by_priority)
    body = [f"{len(rest)} open cards, {_hours(rest)} estimated.", "", *_table(rest)]
    yield from _write(event, tree, "plan", body, len(rest))


def retro(event: Event, tree: Tree) -> Iterator[str]:
    """Write ``sprints/<sprint>-retro.md``: the finished cards and those carried over."""
    cards = _cards_of(event, tree)
    finished = [card for card in cards if card.column in FINISHED]
    carried = sorted((card for card in cards if card.column not in FINISHED), key=_by_priority)
    columns = ", ".join(f"{column} {count}" for column, count in sorted(Counter(card.column for card in cards).items()))
    body = [f"{len(finished)} of {len(cards)} cards finished, {_hours(finished)}. Columns: {columns or 'none'}.", ""]
    body += ["### Finished", "", *_table(finished), "", "### Carried over", "", *_table(carried)]
    yield from _write(event, tree, "retro", body, len(cards))


def _cards_of(event: Event, tree: Tree) -> list[Card]:
    """The cards of the sprint that the payload names, or all cards."""
    cards = list(all_cards(tree))
    asked = event.details.get("sprint")
    return [card for card in cards if card.fields.get("Sprint") == asked] if isinstance(asked, str) else cards


def _sprint(event: Event) -> str:
    """The sprint in the payload, or the event's week, so that plan and retro of a week belong together."""
    asked = event.details.get("sprint")
    if isinstance(asked, str):
        return checked_name(asked, "sprint")
    year, week, _ = event.when.isocalendar()
    return f"{year}-W{week:02}"


def _write(event: Event, tree: Tree, kind: str, body: Sequence[str], count: int) -> Iterator[str]:
    path = f"{FOLDER}/{_sprint(event)}-{kind}.md"
    with tree.lock():
        old = (tree.read(path) or b"").decode("utf-8", "surrogateescape")
        text = old or f"# Sprint {_sprint(event)}: {kind}\n\n## Cards\n"
        new = managed_block.with_block(text, ["", *body, ""], begin=BEGIN, end=END)
        changed = tree.write(path, new.encode("utf-8", "surrogateescape"))
    yield f"{path} {'written' if changed else 'unchanged'}: {count} cards"


def _priority(card: Card) -> str:
    named = [label.removeprefix("priority:") for label in card.labels if label.startswith("priority:")]
    return named[0] if named and named[0] in PRIORITIES else "med"


def _by_priority(card: Card) -> tuple[int, str]:
    return PRIORITIES.index(_priority(card)), card.id


def _hours(cards: Sequence[Card]) -> str:
    found = [HOURS.search(card.fields.get("Time", "")) for card in cards]
    return f"{sum(float(match[1]) for match in found if match):g} h"


def _table(cards: Sequence[Card]) -> list[str]:
    if not cards:
        return ["None."]
    rows = [(card.id, card.title, card.column, _priority(card), card.fields.get("Time", "")) for card in cards]
    head = ["| Card | Title | Column | Priority | Time |", "|---|---|---|---|---|"]
    return [*head, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)]


if __name__ == "__main__":
    sys.exit(run("governance", {"sprint.plan": plan, "sprint.retro": retro}))
