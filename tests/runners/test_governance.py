"""The governance runner writes plans and retros from the cards, again and again the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runners.run_program import Done, call, files_below


def governance(repository: Path, skill: str, **event: Any) -> Done:
    """The governance runner on one skill."""
    return call("governance_runner", repository, skill=skill, **event)


@pytest.fixture
def board(repository: Path) -> Path:
    """A repository with three cards."""
    for column, number, title, labels, time, sprint in (
        ("backlog", "B1", "Write | pipes", "docs, priority:low", "2h", "S02"),
        ("wip", "B2", "Urgent", "priority:critical", "1.5h (estimated)", "S02"),
        ("done", "B3", "Finished", "", "", "S01"),
    ):
        path = repository / "kanban" / column / f"TASK-{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"# TASK-{number}: {title}\n\n- **Status:** {column}\n- **Labels:** {labels}\n- **Sprint:** {sprint}\n"
            f"- **Time:** {time}\n\n---\n"
        )
    return repository


def test_a_plan_lists_open_cards_by_urgency(board: Path) -> None:
    """The week of the event names it; a second run writes nothing; what people add around it stays."""
    assert governance(board, "sprint.plan").lines == ["sprints/2026-W47-plan.md written: 2 cards"]
    plan = board / "sprints/2026-W47-plan.md"
    text = plan.read_text()
    assert text.startswith("# Sprint 2026-W47: plan\n")
    assert "2 open cards, 3.5 h estimated." in text
    rows = [line for line in text.splitlines() if line.startswith("| TASK")]
    assert rows == [
        "| TASK-B2 | Urgent | wip | critical | 1.5h (estimated) |",
        "| TASK-B1 | Write \\| pipes | backlog | low | 2h |",
    ]
    assert governance(board, "sprint.plan").lines == ["sprints/2026-W47-plan.md unchanged: 2 cards"]

    plan.write_text(text + "\n## Our notes\n\nkeep me\n")
    (board / "kanban/backlog/TASK-B1.md").rename(board / "kanban/done/TASK-B1.md")
    assert governance(board, "sprint.plan").lines == ["sprints/2026-W47-plan.md written: 1 cards"]
    assert plan.read_text().endswith("\n## Our notes\n\nkeep me\n")


def test_a_retro_says_what_was_finished_and_what_is_carried_over(board: Path) -> None:
    """A named sprint has its own cards only."""
    governance(board, "sprint.retro")
    text = (board / "sprints/2026-W47-retro.md").read_text()
    assert "1 of 3 cards finished, 0 h. Columns: backlog 1, done 1, wip 1." in text
    assert text.index("TASK-B3") < text.index("### Carried over") < text.index("TASK-B2")

    governance(board, "sprint.retro", payload={"sprint": "S02"})
    assert "0 of 2 cards finished" in (board / "sprints/S02-retro.md").read_text()


def test_an_empty_board_has_a_plan(repository: Path) -> None:
    """No cards are no error."""
    assert governance(repository, "sprint.plan").lines == ["sprints/2026-W47-plan.md written: 0 cards"]


@pytest.mark.parametrize("sprint", ["../../out", "a/b", ""])
def test_a_sprint_that_is_no_name_is_refused(repository: Path, sprint: str) -> None:
    """A sprint's name cannot lead elsewhere."""
    before = files_below(repository.parent)
    assert governance(repository, "sprint.plan", payload={"sprint": sprint}).status == 1
    assert files_below(repository.parent) == before
