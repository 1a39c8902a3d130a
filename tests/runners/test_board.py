"""The board runner moves real card files, keeps their metadata and never leaves the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.runners.run_program import RUNNERS, Done, call, files_below

CARD = "kanban/{}/TASK-TEST-01.md"


def board(repository: Path, skill: str, **event: Any) -> Done:
    """The board runner on one skill."""
    return call("board_runner", repository, skill=skill, **event)


def test_a_card_is_created_moved_and_closed(repository: Path) -> None:
    """One file goes from backlog to wip to done, its status with it; each step again changes nothing."""
    payload = {"title": "Run\tthings", "labels": ["infra", "priority:high"], "time": "4h", "description": "Why.\nHow."}
    for skill, column, said in (
        ("card.create", "backlog", "card TASK-TEST-01 created in backlog"),
        ("card.move", "wip", "card TASK-TEST-01 moved from backlog to wip"),
        ("card.close", "done", "card TASK-TEST-01 closed from wip to done"),
    ):
        done = board(repository, skill, payload=payload)
        assert (done.status, done.lines, done.reason) == (0, [said], "")
        again = board(repository, skill, payload=payload)
        assert (again.status, again.lines) == (0, [f"card TASK-TEST-01 is already in {column}"])
        assert [path for path in files_below(repository) if "kanban" in path] == [CARD.format(column)]
    assert (repository / CARD.format("done")).read_text() == (
        "# TASK-TEST-01: Run things\n\n- **Status:** done\n- **Labels:** infra, priority:high\n- **Time:** 4h\n"
        "- **Created:** 2026-11-16\n\n---\n\nWhy.\nHow.\n"
    )


@pytest.mark.parametrize(("payload", "title"), [("{}", "untitled"), ("", "untitled"), ("Just words", "Just words")])
def test_an_event_without_details_makes_a_card(repository: Path, payload: str, title: str) -> None:
    """An empty object is no title; a plain text is."""
    assert board(repository, "card.create", payload=payload).status == 0
    text = (repository / CARD.format("backlog")).read_text()
    assert text == f"# TASK-TEST-01: {title}\n\n- **Status:** backlog\n- **Created:** 2026-11-16\n\n---\n"


def test_other_files_on_the_board_are_no_cards(repository: Path) -> None:
    """Names with line breaks or bytes that are no text are passed over, whatever the locale."""
    (repository / "kanban/wip\nx").mkdir(parents=True)
    (repository / "kanban/wip\nx/TASK-TEST-01.md").write_text("")
    (repository / os.fsdecode(b"kanban/\xff")).mkdir()
    (repository / os.fsdecode(b"kanban/\xff/TASK-TEST-01.md")).write_text("")
    done = board(repository, "card.create")
    assert (done.status, done.lines) == (0, ["card TASK-TEST-01 created in backlog"])


def test_a_card_written_by_hand_keeps_its_words(repository: Path) -> None:
    """A card with words in its name and bytes that are no UTF-8 is found by its number; only its status changes."""
    card = repository / "kanban/backlog/TASK-B11-execution-layer.md"
    card.parent.mkdir(parents=True)
    card.write_bytes(b"# TASK-B11: Execution\r\n\n- **Status:** backlog\n- **Labels:** a\n\nraw \xff byte\n")
    assert board(repository, "card.move", task_id="B11", payload={"column": "review"}).status == 0
    moved = repository / "kanban/review/TASK-B11-execution-layer.md"
    assert moved.read_bytes() == b"# TASK-B11: Execution\r\n\n- **Status:** review\n- **Labels:** a\n\nraw \xff byte\n"
    assert board(repository, "card.move", task_id="B1").status == 1, "B1 is another card"


def test_a_moved_card_whose_status_was_not_written_is_repaired(repository: Path) -> None:
    """Killed between the rename and the write, a card is in one column; the next run writes its status."""
    board(repository, "card.create")
    (repository / "kanban/wip").mkdir()
    (repository / CARD.format("backlog")).rename(repository / CARD.format("wip"))
    assert board(repository, "card.move").lines == ["card TASK-TEST-01 is already in wip, status written"]
    assert "**Status:** wip" in (repository / CARD.format("wip")).read_text()


def test_after_a_push_the_status_follows_the_column(repository: Path) -> None:
    """A card that somebody moved with git says its new column; other paths are left alone."""
    board(repository, "card.create")
    (repository / "kanban/qa").mkdir()
    (repository / CARD.format("backlog")).rename(repository / CARD.format("qa"))
    done = board(repository, "card.create", trigger="push", paths=[CARD.format("qa"), CARD.format("backlog"), "x.md"])
    assert done.status == 0
    assert done.lines[0] == "card TASK-TEST-01 is in qa, status written"
    assert "**Status:** qa" in (repository / CARD.format("qa")).read_text()


@pytest.mark.parametrize("task_id", ["../../escape", "a/b", "..", "", ".hidden", "x\0y", "a\nb", "T" * 300, "ä" * 20])
def test_a_task_that_is_no_name_is_refused(repository: Path, task_id: str) -> None:
    """Traversal, separators, control characters and endless names: a reason, and nothing written anywhere."""
    before = files_below(repository.parent)
    done = board(repository, "card.create", task_id=task_id)
    assert done.status == 1
    assert done.reason.startswith("board: task ")
    assert "\n" not in done.reason
    assert files_below(repository.parent) == before


@pytest.mark.parametrize("column", ["../out", "/tmp", "a/b", "..", 7])
def test_a_column_that_is_no_name_is_refused(repository: Path, column: object) -> None:
    """A column cannot lead elsewhere."""
    before = files_below(repository.parent)
    assert board(repository, "card.create", payload={"column": column}).status == 1
    assert files_below(repository.parent) == before


@pytest.mark.parametrize("linked", ["kanban", "kanban/backlog"])
def test_a_board_that_is_a_link_is_refused(repository: Path, tmp_path: Path, linked: str) -> None:
    """A folder of the board that leads out of the repository is not followed."""
    outside = tmp_path / "outside"
    (outside / "backlog").mkdir(parents=True)
    (repository / linked).parent.mkdir(exist_ok=True)
    (repository / linked).symlink_to(outside)
    done = board(repository, "card.create")
    assert done.status == 1
    assert "links are not followed" in done.reason
    assert files_below(outside) == {}


def test_a_card_that_is_a_link_is_not_written_through(repository: Path, tmp_path: Path) -> None:
    """A link in a card's place is neither read nor replaced by way of its target."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (repository / "kanban/backlog").mkdir(parents=True)
    (repository / CARD.format("backlog")).symlink_to(victim)
    assert board(repository, "card.create").status == 1
    assert victim.read_text() == "precious"


def test_a_repository_reached_by_a_link_works(repository: Path, tmp_path: Path) -> None:
    """The root itself may be a link: the operator named it."""
    (tmp_path / "link").symlink_to(repository)
    assert board(tmp_path / "link", "card.create").status == 0
    assert (repository / CARD.format("backlog")).exists()


def test_control_characters_stay_out_of_a_card(repository: Path) -> None:
    """Escape sequences, direction overrides and lone surrogates become spaces; lines and tabs of the text stay."""
    title, text = "red \x1b[31m \u202e \ud800", "one\n\ttwo\x07\r\nthree"
    assert board(repository, "card.create", payload={"title": title, "description": text}).status == 0
    written = (repository / CARD.format("backlog")).read_text()
    assert not [letter for letter in written if ord(letter) < 32 and letter not in "\n\t"]
    assert "# TASK-TEST-01: red [31m\n" in written
    assert "one\n\ttwo\nthree\n" in written


def test_a_payload_of_10_mib_is_refused_with_its_size(repository: Path) -> None:
    """Too much for a card: the reason names the size and the limit, no half card is left."""
    done = board(repository, "card.create", payload="x" * (10 << 20))
    assert done.status == 1
    assert done.reason == f"board: the text has {10 << 20} bytes (limit {1 << 20})"
    assert not (repository / "kanban").exists()


@pytest.mark.parametrize("stdin", [b"", b"not json", b"[]", b'{"task_id": 7}', b"[" * 100_000, b"\xff\xfe"])
def test_input_that_is_no_event_is_refused(repository: Path, stdin: bytes) -> None:
    """One line on standard error, never a traceback."""
    done = call("board_runner", repository, stdin=stdin)
    assert done.status == 1
    assert done.reason.startswith("board: ")
    assert "Traceback" not in done.reason
    assert len(done.reason.splitlines()) == 1


def test_ten_programs_at_once_make_one_card(repository: Path) -> None:
    """Creations and moves of one card that overlap leave exactly one file."""
    skills = ["card.create", "card.move", "card.close"] * 3
    board(repository, "card.create")
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda skill: board(repository, skill), skills))
    assert [done.reason for done in ended if done.status] == []
    assert len([path for path in files_below(repository) if path.startswith("kanban/")]) == 1


def test_a_card_in_two_columns_is_refused(repository: Path) -> None:
    """Which of the two is right is not guessed."""
    for column in ("backlog", "wip"):
        (repository / "kanban" / column).mkdir(parents=True)
        (repository / CARD.format(column)).write_text("# TASK-TEST-01\n")
    done = board(repository, "card.close")
    assert done.status == 1
    assert "exists twice: kanban/backlog/TASK-TEST-01.md, kanban/wip/TASK-TEST-01.md" in done.reason


def test_a_full_or_read_only_folder_is_a_reason(repository: Path) -> None:
    """What the operating system refuses is said in one line."""
    if os.geteuid() == 0:
        (repository / "kanban").mkdir()
        (repository / "kanban/backlog").write_text("a file in the folder's place")
    else:
        (repository / "kanban").mkdir(mode=0o500)
    done = board(repository, "card.create")
    assert done.status == 1
    assert done.reason.startswith("board: ")
    assert "Traceback" not in done.reason


def test_an_unknown_skill_is_refused(repository: Path) -> None:
    """The reason lists what the board can do."""
    done = board(repository, "card.eat\x1b")
    assert (done.status, done.reason) == (1, "board: skill 'card.eat' is not one of card.create, card.move, card.close")


def test_a_program_runs_without_its_helpers_on_the_path(repository: Path) -> None:
    """Started by its path, the installed package is found all the same."""
    done = subprocess.run(
        [sys.executable, str(RUNNERS / "board_runner.py")],
        cwd=repository,
        input=b'{"task_id": "A1", "skill": "card.create"}',
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
