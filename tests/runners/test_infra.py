"""The infra runner manages its part of .gitignore, a lock with a holder, and reverts that never leave a mess."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runners.infra.ignore_rules import BEGIN, END, PROFILES
from runners.infra.repository_lock import LOCK_FILE
from tests.runners.run_program import Done, call, commit, git


def infra(repository: Path, skill: str, **event: Any) -> Done:
    """The infra runner on one skill."""
    return call("infra_runner", repository, skill=skill, **event)


# --- ignore rules


def block(repository: Path) -> list[str]:
    """The managed rules."""
    lines = (repository / ".gitignore").read_text().splitlines()
    return lines[lines.index(BEGIN) + 1 : lines.index(END)]


def test_rules_are_added_and_removed_and_others_stay(repository: Path) -> None:
    """A person's lines, their line ends included, are untouched; git itself obeys the managed rules."""
    (repository / ".gitignore").write_bytes(b"mine/\r\n# my words\n")
    first = infra(repository, "git.ignore", payload={"profile": "python", "rules": ["*.log"], "remove": ["dist/"]})
    assert first.lines == [f".gitignore written: {len(PROFILES['python'])} managed rules"]
    assert (repository / ".gitignore").read_bytes().startswith(b"mine/\r\n# my words\n\n" + BEGIN.encode())
    (repository / "x.log").write_text("")
    (repository / ".env").write_text("")
    assert git(repository, "check-ignore", "x.log", ".env").split() == ["x.log", ".env"]

    again = infra(repository, "git.ignore", payload={"rules": ["*.log"]})
    assert (again.status, again.lines[0].split(":")[0]) == (0, ".gitignore unchanged")
    infra(repository, "git.ignore", payload=["*.tmp"])
    infra(repository, "git.ignore", payload="*.bak\n# a remark\n*.old\n")
    assert block(repository)[-3:] == ["*.tmp", "*.bak", "*.old"]
    infra(repository, "git.ignore", payload={"remove": ["*.log"]})
    assert "*.log" not in block(repository)
    assert ".venv/" in block(repository)


def test_a_push_of_gitignore_writes_the_block_once(repository: Path) -> None:
    """Whatever skill a push is routed by, the managed block is there afterwards; a second push changes nothing."""
    for word in ("written", "unchanged"):
        done = infra(repository, "git.lock", trigger="push", paths=[".gitignore"])
        assert done.lines == [f".gitignore {word}: {len(PROFILES['base'])} managed rules"]
    assert not (repository / LOCK_FILE).exists()


@pytest.mark.parametrize(
    "payload",
    [{"rules": ["a\nb"]}, {"rules": ["a\x1b"]}, {"rules": ["x" * 600]}, {"rules": 7}, {"profile": "cobol"}],
)
def test_a_wrong_rule_or_profile_is_refused(repository: Path, payload: object) -> None:
    """Nothing is written that could be a second rule or is not visible."""
    done = infra(repository, "git.ignore", payload=payload)
    assert done.status == 1
    assert not (repository / ".gitignore").exists()


def test_a_broken_block_is_left_to_a_person(repository: Path) -> None:
    """A block without its end is not guessed at."""
    (repository / ".gitignore").write_text(f"{BEGIN}\nx\n")
    assert infra(repository, "git.ignore").status == 1
    assert (repository / ".gitignore").read_text() == f"{BEGIN}\nx\n"


def test_a_gitignore_that_is_a_link_is_refused(repository: Path, tmp_path: Path) -> None:
    """The file it leads to stays as it is."""
    (tmp_path / "theirs").write_text("theirs\n")
    (repository / ".gitignore").symlink_to(tmp_path / "theirs")
    assert infra(repository, "git.ignore").status == 1
    assert (tmp_path / "theirs").read_text() == "theirs\n"


# --- the lock


def test_a_lock_has_a_holder_and_only_the_holder_gives_it_back(repository: Path) -> None:
    """Taken twice it is the same lock; another task is told who has it and since when."""
    taken = infra(repository, "git.lock", payload={"reason": "release\nday"})
    assert taken.lines == ["locked by TEST-01"]
    held = json.loads((repository / LOCK_FILE).read_text())
    assert held == {"holder": "TEST-01", "since": "2026-11-16T08:00:00+00:00", "reason": "release day"}
    assert infra(repository, "git.lock").lines == ["already locked by TEST-01 since 2026-11-16T08:00:00+00:00"]

    other = infra(repository, "git.lock", task_id="OTHER")
    assert other.status == 1
    assert other.reason == ("infra: the repository is locked by TEST-01 since 2026-11-16T08:00:00+00:00: release day")
    assert infra(repository, "git.lock", task_id="OTHER", payload={"action": "unlock"}).status == 1
    assert infra(repository, "git.lock", payload={"action": "unlock"}).lines == ["unlocked, was held by TEST-01"]
    assert infra(repository, "git.lock", payload={"action": "unlock"}).lines == ["was not locked"]
    assert infra(repository, "git.lock", payload={"action": "status"}).lines == ["not locked"]


def test_a_damaged_lock_counts_as_held_until_it_is_forced(repository: Path) -> None:
    """Somebody meant something by it."""
    (repository / LOCK_FILE).write_text("{")
    assert infra(repository, "git.lock").status == 1
    assert infra(repository, "git.lock", payload={"action": "unlock", "force": True}).status == 0
    assert infra(repository, "git.lock").status == 0


# --- revert


def test_a_commit_is_reverted_once(repository: Path) -> None:
    """A new commit takes the old one back; the same event again changes nothing."""
    bad = commit(repository, {"a.txt": "bad\n"}, "bad idea")
    commit(repository, {"b.txt": "good\n"})
    done = infra(repository, "git.revert", payload={"commit": bad[:12]})
    assert done.status == 0, done.reason
    assert done.lines[0].startswith(f"commit {bad[:12]} reverted by ")
    assert not (repository / "a.txt").exists()
    assert (repository / "b.txt").exists()
    head = git(repository, "rev-parse", "HEAD")
    assert infra(repository, "git.revert", payload={"commit": bad}).lines == [f"commit {bad[:12]} is already reverted"]
    assert git(repository, "rev-parse", "HEAD") == head


def test_a_conflict_leaves_the_repository_as_it_was(repository: Path) -> None:
    """A revert that cannot be done is undone: same commit, clean tree, no revert under way."""
    commit(repository, {"a.txt": "one\n"})
    bad = commit(repository, {"a.txt": "two\n"})
    head = commit(repository, {"a.txt": "three\n"})
    done = infra(repository, "git.revert", payload={"commit": bad})
    assert done.status == 1
    assert "the repository is unchanged" in done.reason
    assert git(repository, "rev-parse", "HEAD") == head
    assert git(repository, "status", "--porcelain") == ""
    assert not (repository / ".git/REVERT_HEAD").exists()


def test_changes_that_are_not_committed_stop_a_revert(repository: Path) -> None:
    """Nobody's work is touched."""
    bad = commit(repository, {"a.txt": "bad\n"})
    (repository / "README.md").write_text("my work\n")
    done = infra(repository, "git.revert", payload=bad)
    assert done.status == 1
    assert "uncommitted changes, the first is 'README.md'" in done.reason
    assert (repository / "README.md").read_text() == "my work\n"


@pytest.mark.parametrize("asked", ["HEAD", "--abort", "main", "", "f" * 40, "-c core.pager=x"])
def test_what_is_no_commit_of_this_branch_is_refused(repository: Path, asked: str) -> None:
    """Names move, options are no commits, and an unknown id is said to be unknown."""
    head = git(repository, "rev-parse", "HEAD")
    assert infra(repository, "git.revert", payload={"commit": asked}).status == 1
    assert git(repository, "rev-parse", "HEAD") == head


def test_a_merge_is_not_reverted_by_guess(repository: Path) -> None:
    """Which side to keep is a person's decision."""
    git(repository, "checkout", "-q", "-b", "side")
    commit(repository, {"side.txt": "x\n"})
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "--no-edit", "side")
    done = infra(repository, "git.revert", payload=git(repository, "rev-parse", "HEAD"))
    assert done.status == 1
    assert "is a merge" in done.reason


def test_a_locked_repository_is_not_reverted(repository: Path) -> None:
    """Another task's lock holds."""
    bad = commit(repository, {"a.txt": "bad\n"})
    infra(repository, "git.lock", task_id="RELEASE")
    assert "locked by RELEASE" in infra(repository, "git.revert", payload=bad).reason
    assert infra(repository, "git.revert", payload=bad, task_id="RELEASE").status == 0


def test_a_folder_inside_a_repository_is_not_its_root(repository: Path) -> None:
    """git does not find the repository above: that would be another root than the one that was given."""
    bad = commit(repository, {"sub/a.txt": "bad\n"})
    done = infra(repository / "sub", "git.revert", payload=bad)
    assert done.status == 1
    assert "is not the top folder of a git repository" in done.reason


def test_hooks_of_the_repository_do_not_run(repository: Path, tmp_path: Path) -> None:
    """A revert is git's work alone."""
    bad = commit(repository, {"a.txt": "bad\n"})
    for hook in ("pre-commit", "commit-msg", "post-commit", "prepare-commit-msg"):
        path = repository / ".git/hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
        path.chmod(0o755)
    assert infra(repository, "git.revert", payload=bad).status == 0
    assert not (tmp_path / "ran").exists()
