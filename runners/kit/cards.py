"""A card: a Markdown file whose folder is its column and whose first lines are its metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from runners.kit.errors import JobError
from runners.kit.event import Event
from runners.kit.text import checked_name, paragraph, single_line
from runners.kit.tree import Tree

BOARD = "kanban"
LARGEST_BODY = 1 << 20
# The fields of a new card, in this order, and the members of the payload that they come from.
FIELDS = {
    "Labels": "labels",
    "Assignee": "assignee",
    "Sprint": "sprint",
    "Time": "time",
    "Milestone": "milestone",
    "Blocked by": "blocked_by",
    "Blocks": "blocks",
}
HEADING = re.compile(r"^# (TASK-[A-Za-z0-9._-]+?):?(?:\s+(.*))?$", re.MULTILINE)
FIELD = re.compile(r"^- \*\*([^*\n]+):\*\* *(.*)$", re.MULTILINE)
# Only names that can be printed and put into a table are cards.
PLACE = re.compile(rf"{BOARD}/([A-Za-z0-9][A-Za-z0-9 ._-]*)/(TASK-[A-Za-z0-9 ._-]+\.md)")
STATUS = re.compile(r"^- \*\*Status:\*\*.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card as it is on disk."""

    id: str  # TASK-B11
    column: str
    file: str  # TASK-B11.md, or TASK-B11-some-words.md
    text: str

    @property
    def path(self) -> str:
        """Its path from the repository's root."""
        return f"{BOARD}/{self.column}/{self.file}"

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return self.text.encode("utf-8", "surrogateescape")

    @property
    def title(self) -> str:
        """The text of its heading after the id."""
        heading = HEADING.search(self.text)
        return single_line(heading[2] or "") if heading else ""

    @property
    def fields(self) -> dict[str, str]:
        """Its metadata; of a repeated name the first value."""
        found: dict[str, str] = {}
        for key, value in FIELD.findall(self.text[:10_000]):
            found.setdefault(single_line(key), single_line(value))
        return found

    @property
    def labels(self) -> list[str]:
        """Its labels."""
        return [label for item in self.fields.get("Labels", "").split(",") if (label := item.strip())]


def card_id(task_id: str) -> str:
    """``TASK-B11`` for the task B11 or TASK-B11."""
    checked = checked_name(task_id, "task")
    return checked if checked.startswith("TASK-") else f"TASK-{checked}"


def all_cards(tree: Tree, beginning: str = "TASK-") -> Iterator[Card]:
    """The cards whose file names start with ``beginning``, by column and file name; other files are not read."""
    for column in tree.folders(BOARD):
        for file in tree.files(f"{BOARD}/{column}"):
            if file.startswith(beginning) and (card := card_at(tree, f"{BOARD}/{column}/{file}")):
                yield card


def card_at(tree: Tree, path: str) -> Card | None:
    """The card in a file; None if there is no file or the path is not that of a card."""
    place = PLACE.fullmatch(path)
    data = tree.read(path) if place else None
    if place is None or data is None:
        return None
    text = data.decode("utf-8", "surrogateescape")  # bytes that are not UTF-8 are kept
    return Card(id=_id_of(place[2], text), column=place[1], file=place[2], text=text)


def _id_of(file: str, text: str) -> str:
    """The id in a file name; if words follow it, the heading says where it ends."""
    stem = file.removesuffix(".md")
    heading = HEADING.search(text)
    if heading and stem.startswith(heading[1] + "-"):
        return heading[1]
    return stem


def find_card(tree: Tree, task_id: str) -> Card | None:
    """The card of a task, or None; JobError if it is in two columns."""
    wanted = card_id(task_id)
    found = [card for card in all_cards(tree, wanted) if card.id == wanted]
    if len(found) > 1:
        raise JobError(f"card {wanted} exists twice: {', '.join(card.path for card in found)}: delete one")
    return found[0] if found else None


def new_card(event: Event, column: str) -> Card:
    """The card that an event describes."""
    number = card_id(event.task_id)
    details = event.details
    title = single_line(_text(details.get("title"))) or single_line(event.plain.split("\n", 1)[0], 120) or "untitled"
    lines = [f"# {number}: {title}", "", f"- **Status:** {column}"]
    for key, member in FIELDS.items():
        if value := single_line(_text(details.get(member)), 500):
            lines.append(f"- **{key}:** {value}")
    lines += [f"- **Created:** {event.when.date().isoformat()}", "", "---", ""]
    body = paragraph(_text(details.get("description")) or event.plain, LARGEST_BODY).strip()
    if body and body != title:
        lines += [body, ""]
    return Card(id=number, column=column, file=f"{number}.md", text="\n".join(lines))


def with_status(text: str, column: str) -> str:
    """The text of a card with its status line set to the column."""
    line = f"- **Status:** {column}"
    if STATUS.search(text):
        return STATUS.sub(lambda _: line, text, count=1)
    heading = HEADING.search(text)
    at = heading.end() if heading else 0
    return f"{text[:at]}\n\n{line}{text[at:]}" if heading else f"{line}\n\n{text}"


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value if isinstance(item, str | int | float))
    return value if isinstance(value, str) else "" if value is None else str(value)
