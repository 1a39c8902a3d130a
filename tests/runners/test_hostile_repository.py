"""A repository whose configuration and hooks name programs does not get them run by a runner program's git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.booby_trap import ATTRIBUTES, booby_trap
from tests.home import plain_git
from tests.runners.run_program import Done, call, commit, git, script

PROGRAMS = {
    "board": ("board_runner", "card.create"),
    "ignore": ("infra_runner", "git.ignore"),
    "lock": ("infra_runner", "git.lock"),
    "docs": ("docs_runner", "doc.sync"),
    "security": ("security_runner", "cred.audit"),
    "governance": ("governance_runner", "sprint.plan"),
}


def trapped(repository: Path, mark: Path) -> tuple[str, str]:
    """Spring the trap in the repository; two of its commits: one that can be reverted, and one that conflicts."""
    commit(repository, {".gitattributes": ATTRIBUTES, "a.txt": "one\n"})
    conflicting = commit(repository, {"a.txt": "two\n"})
    commit(repository, {"a.txt": "three\n"})
    bad = commit(repository, {"bad.txt": "bad\n", "docs/b.md": "# Bad\n"})
    for path in (repository / "a.txt", repository / "README.md"):
        os.utime(path, (1, 1))  # so that git reads it again
    common = repository / git(repository, "rev-parse", "--git-common-dir")
    booby_trap(common.resolve(), mark)
    return bad, conflicting


def revert(repository: Path, commit_id: str) -> Done:
    """The infra runner's revert."""
    return call("infra_runner", repository, skill="git.revert", payload=commit_id)


def is_trapped(repository: Path, mark: Path) -> bool:
    """Whether a git that reads the repository's own configuration runs the trap."""
    for path in (repository / "a.txt", repository / "README.md"):
        os.utime(path, (2, 2))
    subprocess.run(["git", "status"], cwd=repository, env=plain_git(), capture_output=True, check=False)
    return mark.exists()


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_program_runs_what_the_repository_names(name: str, repository: Path, tmp_path: Path) -> None:
    """Filters, drivers, hooks, monitors: each program does its work, and the trap's does not run."""
    trapped(repository, mark := tmp_path / "pwned")
    module, skill = PROGRAMS[name]
    done = call(module, repository, skill=skill)
    assert done.status == 0, done.reason
    assert not mark.exists(), mark.read_text()
    assert is_trapped(repository, mark)


def test_verify_runs_only_the_repository_s_own_checks(repository: Path, tmp_path: Path) -> None:
    """Its list of files comes from git, which runs nothing."""
    trapped(repository, mark := tmp_path / "pwned")
    assert script("verify.sh", repository).lines[0] == "verify: no shell scripts"
    (repository / "run.sh").write_text("#!/bin/bash\necho hello\n")
    done = script("verify.sh", repository)
    assert done.status == 0 and "1 scripts" in done.lines[0], done
    assert not mark.exists(), mark.read_text()
    assert is_trapped(repository, mark)


@pytest.mark.parametrize("detached", [False, True])
def test_a_revert_writes_to_the_real_repository(repository: Path, tmp_path: Path, *, detached: bool) -> None:
    """Branch or HEAD, index, files and reflog are the repository's own, and the trap does not run."""
    bad, _ = trapped(repository, mark := tmp_path / "pwned")
    if detached:
        (repository / ".git/HEAD").write_text(f"{bad}\n")
    done = revert(repository, bad)
    assert done.status == 0, done.reason
    assert not mark.exists(), mark.read_text()
    config = repository / ".git/config"
    config.write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")  # for the test's own git
    assert git(repository, "rev-parse", "HEAD~1") == bad
    assert (git(repository, "rev-parse", "main") == bad) == detached
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == ""
    assert not (repository / "bad.txt").exists()
    assert "revert" in git(repository, "reflog", "-1", "HEAD").lower()
    assert git(repository, "fsck", "--strict") == ""
    assert not list((repository / ".git").rglob("*.lock"))


def test_a_conflict_of_a_trapped_repository_leaves_it_as_it_was(repository: Path, tmp_path: Path) -> None:
    """The merge driver that the repository names does not run either."""
    _, conflicting = trapped(repository, mark := tmp_path / "pwned")
    done = revert(repository, conflicting)
    assert done.status == 1 and "the repository is unchanged" in done.reason
    assert not mark.exists(), mark.read_text()
    assert (repository / "a.txt").read_text() == "three\n"
    assert not (repository / ".git/REVERT_HEAD").exists()


def test_a_linked_worktree_is_reverted_in_place(repository: Path, tmp_path: Path) -> None:
    """It has its own HEAD and index, and shares objects and branches with the repository."""
    main = git(repository, "rev-parse", "main")
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", "-b", "side", str(linked))
    bad, _ = trapped(linked, mark := tmp_path / "pwned")
    done = revert(linked, bad)
    assert done.status == 0, done.reason
    assert not mark.exists(), mark.read_text()
    heads = repository / ".git/refs/heads"
    assert (heads / "side").read_text().strip() != bad and (heads / "main").read_text().strip() == main
    assert not (linked / "bad.txt").exists()
    assert is_trapped(linked, mark)


def test_a_trapped_submodule_is_not_looked_into(repository: Path, tmp_path: Path) -> None:
    """git would start another git in it, which reads the submodule's own configuration."""
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    commit(inner, {"a.txt": "a\n", ".gitattributes": ATTRIBUTES})
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "inner")
    commit(repository, {})
    bad = commit(repository, {"bad.txt": "bad\n"})
    mark = tmp_path / "pwned"
    booby_trap(repository / ".git/modules/inner", mark)
    os.utime(repository / "inner/a.txt", (1, 1))
    done = revert(repository, bad)
    assert done.status == 0, done.reason
    assert not mark.exists(), mark.read_text()
    subprocess.run(["git", "status"], cwd=repository, env=plain_git(), capture_output=True, check=False)
    assert mark.exists()


def test_plain_settings_of_the_repository_count(repository: Path) -> None:
    """Name, address and the format in which it is stored are kept: they start nothing."""
    git(repository, "config", "user.name", 'A "quoted" = name')
    git(repository, "config", "user.email", "a@b.c")
    git(repository, "config", "core.logAllRefUpdates", "true")
    bad = commit(repository, {"bad.txt": "bad\n"})
    assert revert(repository, bad).status == 0
    assert git(repository, "log", "-1", "--format=%an <%ae>") == 'A "quoted" = name <a@b.c>'


@pytest.mark.parametrize("form", ["--object-format=sha256", "--object-format=sha1"])
def test_both_forms_of_objects(tmp_path: Path, form: str) -> None:
    """The view says how the objects are stored."""
    repository = tmp_path / "other"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main", form)
    commit(repository, {"README.md": "# Here\n", "ignored.md": "[x](missing.md)\n"})
    bad = commit(repository, {"bad.txt": "bad\n"})
    assert revert(repository, bad).status == 0
    assert git(repository, "rev-parse", "HEAD~1") == bad
    assert call("security_runner", repository, skill="cred.audit").lines == ["2 files scanned, 0 findings"]


def test_no_view_is_left(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs remove their temporary folders."""
    bad = commit(repository, {"bad.txt": "bad\n"})
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    assert script("verify.sh", repository).status == 0
    assert revert(repository, bad).status == 0
    assert not list((tmp_path / "tmp").iterdir())
