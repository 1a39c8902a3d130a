"""Where tasks run: locks on shared paths, worktrees on branches of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.home import plain_git
from tests.running import eventually
from tests.tasks.task_server import TaskServer

MakeServer = Callable[..., TaskServer]
HOLD = {"executor": "shell", "cmd_template": 'echo {prompt}; while [ ! -e "$PWD/go-{task_id}" ]; do sleep 0.02; done'}


def git(folder: Path, *arguments: str) -> str:
    """git in somebody's own repository."""
    identity = ["-c", "user.name=u", "-c", "user.email=u@localhost"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    done = subprocess.run(command, env=plain_git(), check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's repository with a commit."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "file").write_text("one\n")
    git(root, "add", "file")
    git(root, "commit", "-q", "-m", "first")
    return root


def shared(root: Path, *locks: Path) -> dict[str, Any]:
    workspace = {"project_id": 1, "project_root": str(root), "lock_paths": [str(path) for path in locks]}
    return {"execution_mode": "shared-workspace", "workspace": workspace}


def isolated(root: Path, path: Path, branch: str) -> dict[str, Any]:
    workspace = {"project_id": 1, "project_root": str(root), "worktree_path": str(path), "git_branch": branch}
    return {"execution_mode": "isolated-worktree", "workspace": workspace}


def test_no_workspace_is_an_empty_folder_of_its_own(make_server: MakeServer) -> None:
    """Nothing of another task is there, and nothing stays."""
    server = make_server(executor="shell", cmd_template="ls -A; touch left; pwd")
    places = [server.run(name)["stdout"].strip() for name in ("a", "b")]
    assert len(set(places)) == 2 and not any(Path(place).exists() for place in places)


def test_a_place_that_cannot_be_made_is_told(make_server: MakeServer) -> None:
    """The task fails with the reason, and does not wait for ever."""
    server = make_server()
    (server.root / "artifacts" / "scratch").write_text("in the way")
    found = server.run("t")
    assert (found["status"], found["started_at"]) == ("failed", None)
    assert "the directory of the session cannot be created" in found["message"], found["message"]


def test_locks_are_held_and_waited_for(make_server: MakeServer, tmp_path: Path) -> None:
    """A path below a locked one, above it, or another name of it waits; a stranger does not; order is kept."""
    root = tmp_path / "p"
    (root / "a" / "b").mkdir(parents=True)
    (root / "link").symlink_to(root / "a")
    server = make_server(**HOLD)
    server.submitted("first", **shared(root, root / "a"))
    server.running("first")
    waiting = {
        "same": root / "a",
        "below": root / "a" / "b" / "new",
        "above": root,
        "linked": root / "link" / "b",
    }
    for name, path in waiting.items():
        server.submitted(name, **shared(root, path))
    (root / "ab").mkdir()
    server.submitted("queued behind above", **shared(root, root / "ab"))
    other = tmp_path / "other"
    other.mkdir()
    server.submitted("stranger", **shared(other, other))
    server.running("stranger")
    assert {server.get(name)["status"] for name in (*waiting, "queued behind above")} == {"queued"}
    assert server.cancel("below")["status"] == "canceled"
    order = ["first", "same", "above", "linked"]
    for before, after in pairwise(order):
        assert server.get(after)["status"] == "queued"
        (root / f"go-{before}").touch()
        server.running(after)
    server.running("queued behind above")
    assert server.cancel("linked")["status"] == server.cancel("queued behind above")["status"] == "canceled"
    (other / "go-stranger").touch()
    assert server.ended("stranger")["status"] == "success"


def test_a_symlinked_root_is_its_target(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """The task runs in the real directory."""
    (tmp_path / "link").symlink_to(project)
    server = make_server(executor="shell", cmd_template="pwd -P")
    assert server.run("t", **shared(tmp_path / "link", tmp_path / "link"))["stdout"] == f"{project}\n"


def test_a_worktree_of_its_own(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """A new branch from HEAD; commits stay on it, what was not committed is kept as a patch, the tree goes."""
    script = (
        "echo two >> file; git -c user.name=a -c user.email=a@b commit -qam second; echo three >> file; echo x > new"
    )
    server = make_server(executor="shell", cmd_template=script)
    path = tmp_path / "deep" / "wt"
    found = server.run("t", **isolated(project, path, "agent/1"))
    assert (found["status"], found["worktree_cleanup_attempted"]) == ("success", True), found
    assert found["worktree_cleanup_succeeded"] is True and "uncommitted.patch" in found["worktree_cleanup_message"]
    assert not path.exists() and git(project, "worktree", "list").count("\n") == 0
    assert git(project, "show", "agent/1:file") == "one\ntwo"
    artifact = server.local.store.artifacts.get(found["patch_artifact_id"])
    git(project, "checkout", "-q", "agent/1")
    git(project, "apply", artifact.path)
    assert (project / "file").read_text() == "one\ntwo\nthree\n" and (project / "new").read_text() == "x\n"


def test_a_branch_that_exists_is_never_reset(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """Its own commit is what the task sees, and it is still there afterwards; a detached commit keeps a ref."""
    git(project, "checkout", "-q", "-b", "theirs")
    (project / "file").write_text("theirs\n")
    git(project, "commit", "-q", "-am", "theirs")
    head = git(project, "rev-parse", "theirs")
    git(project, "checkout", "-q", "main")
    script = "cat file; git checkout -q --detach; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m lost"
    server = make_server(executor="shell", cmd_template=script)
    assert server.run("t", **isolated(project, tmp_path / "wt", "theirs"))["stdout"] == "theirs\n"
    assert git(project, "rev-parse", "theirs") == head
    kept = git(project, "for-each-ref", "--format=%(subject)", "refs/debug-server")
    assert kept == "lost"


def test_two_tasks_on_one_branch_or_path(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """409 while the first one lives, also when it only waits; free afterwards. The user's own checkout counts."""
    server = make_server(**HOLD)
    server.submitted("a", **isolated(project, tmp_path / "wa", "one"))
    for name, path, branch in (
        ("b", "wb", "refs/heads/one"),
        ("c", "wa", "two"),
        ("d", "wa/below", "three"),
        ("e", "we", "main"),
    ):
        refused = server.submit(name, **isolated(project, tmp_path / path, branch))
        assert refused.status_code == 409, refused.text
    server.running("a")
    (tmp_path / "wa" / "go-a").touch()
    assert server.ended("a")["status"] == "success"
    server.submitted("b", **isolated(project, tmp_path / "wb", "one"))
    server.running("b")
    assert server.cancel("b")["worktree_cleanup_succeeded"] is True
    assert not (tmp_path / "wb").exists()


def test_what_is_not_ours_is_left_alone(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """A directory or a worktree that somebody else made is a conflict, never removed."""
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "precious").write_text("mine")
    git(project, "worktree", "add", "-q", "-b", "user", str(tmp_path / "user"))
    server = make_server()
    for path, branch in ((taken, "x"), (tmp_path / "user", "user"), (tmp_path / "user", "y"), (tmp_path / "z", "user")):
        assert server.submit("t", **isolated(project, path, branch)).status_code == 409
    assert (taken / "precious").read_text() == "mine" and (tmp_path / "user" / "file").exists()
    for branch in ("a..b", "refs/", "refs/tags/v1", "refs/heads/", "x y"):
        refused = server.submit("t", **isolated(project, tmp_path / "w", branch)).json()["error"]
        assert refused["field"] == "workspace.git_branch"
    for path in (project, tmp_path, project / ".git" / "w"):
        refused = server.submit("t", **isolated(project, path, "b")).json()["error"]
        assert refused["field"] == "workspace.worktree_path"


def test_an_empty_directory_that_was_there_stays(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """It is used, and empty again afterwards: the same directory, whether the task ended or git could not fill it."""
    server = make_server(executor="shell", cmd_template="echo more >> file; mkdir -p deep/er; ln -s /etc link; pwd -P")
    place = tmp_path / "mine"
    place.mkdir(mode=0o750)
    before = place.stat()
    found = server.run("t", **isolated(project, place, "refs/heads/b"))
    assert (found["status"], found["stdout"]) == ("success", f"{place}\n"), found
    assert found["worktree_cleanup_succeeded"] is True and "is empty again" in found["worktree_cleanup_message"]
    assert (place.stat().st_ino, place.stat().st_mode) == (before.st_ino, before.st_mode)
    assert list(place.iterdir()) == [] and Path("/etc/passwd").exists()
    assert git(project, "worktree", "list").count("\n") == 0 and git(project, "branch", "--list", "b").strip() == "b"
    (project / "lost").write_text("lost")
    git(project, "add", "lost")
    git(project, "commit", "-q", "-m", "cannot be checked out")
    blob = git(project, "rev-parse", "HEAD:lost")
    (project / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    found = server.run("u", **isolated(project, place, "c"))
    assert found["message"].startswith("isolated worktree setup failed: "), found
    assert place.stat().st_mode == before.st_mode and list(place.iterdir()) == []
    server.run("v", **isolated(project, tmp_path / "not mine", "d"))
    assert not (tmp_path / "not mine").exists()


def test_a_worktree_that_cannot_be_made(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """A collision that comes between submission and start fails the task with its reason, and removes nothing."""
    server = make_server(max_concurrency=1, **HOLD)
    server.submitted("busy", **shared(tmp_path, tmp_path))
    server.running("busy")
    server.submitted("t", **isolated(project, tmp_path / "wt", "b"))
    (tmp_path / "wt").mkdir()
    (tmp_path / "wt" / "precious").write_text("mine")
    (tmp_path / "go-busy").touch()
    found = server.ended("t")
    assert (found["status"], found["exit_code"]) == ("failed", None)
    assert found["message"].startswith("isolated worktree setup failed: ")
    assert (tmp_path / "wt" / "precious").read_text() == "mine"


def test_worktrees_can_be_kept(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """HOST_RUNNER_CLEANUP_WORKTREE=false leaves it where it is, for the next task on it."""
    server = make_server(executor="shell", cmd_template="echo more >> file; cat file", cleanup_worktree=False)
    place = isolated(project, tmp_path / "wt", "b")
    found = server.run("t", **place)
    assert (found["worktree_cleanup_attempted"], found["worktree_cleanup_succeeded"]) == (False, None)
    assert server.run("t2", **place)["stdout"] == "one\nmore\nmore\n"


def test_locks_survive_in_line(make_server: MakeServer, tmp_path: Path) -> None:
    """Many on one lock run one at a time and all of them end."""
    server = make_server(
        executor="shell", cmd_template="mkdir busy || exit 9; sleep 0.02; rmdir busy", max_concurrency=8
    )
    for number in range(12):
        server.submitted(f"t{number}", **shared(tmp_path, tmp_path))
    assert {server.ended(f"t{number}")["status"] for number in range(12)} == {"success"}
    eventually(lambda: not (tmp_path / "busy").exists())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting and chattr need root")
def test_cleanup_never_crosses_a_mount(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """A task that bind-mounts the host's data into its folder and locks its files: all of that goes, the data stays."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "precious").write_text("data")
    script = f"mkdir m d; mount --bind {host} m; touch d/f; chattr +i d/f d . 2>/dev/null; pwd"
    server = make_server(executor="shell", cmd_template=script)
    found = server.run("scratch")
    place = Path(found["stdout"].strip())
    assert not place.exists() and (host / "precious").read_text() == "data"
    path = tmp_path / "wt"
    found = server.run("branch", **isolated(project, path, "agent/1"))
    assert found["worktree_cleanup_succeeded"] is True, found
    assert not path.exists() and (host / "precious").read_text() == "data"
    path.mkdir()
    found = server.run("empty", **isolated(project, path, "agent/2"))
    assert found["worktree_cleanup_succeeded"] is True, found
    assert not any(path.iterdir()) and (host / "precious").read_text() == "data"


def test_no_program_of_the_repository_s_is_run(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """Filters, hooks and whatever else the project's configuration names, also by includes, runs nothing of ours."""
    mark, program = tmp_path / "pwned", tmp_path / "trap.sh"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    keys = (
        *("filter.evil.smudge", "filter.evil.clean", "filter.evil.process", "core.fsmonitor", "core.sshCommand"),
        *("diff.external", "diff.evil.textconv", "diff.evil.command", "core.alternateRefsCommand", "core.pager"),
    )
    included = tmp_path / "included"
    for key in keys:
        git(project, "config", "--file", str(included), key, str(program))
    (project / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    git(project, "add", ".gitattributes")
    git(project, "commit", "-q", "-m", "attributes")
    git(project, "config", "include.path", str(included))
    git(project, "config", "extensions.worktreeConfig", "true")
    git(project, "config", "--file", str(project / ".git" / "config.worktree"), "core.hooksPath", str(tmp_path))
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (project / ".git" / "hooks" / hook).parent.mkdir(exist_ok=True)
        (tmp_path / hook).hardlink_to(program)
        (project / ".git" / "hooks" / hook).hardlink_to(program)
    server = make_server(executor="shell", cmd_template="cat file; echo two >> file")
    found = server.run("t", **isolated(project, tmp_path / "wt", "b"))
    assert (found["stdout"], found["worktree_cleanup_succeeded"]) == ("one\n", True), found
    assert not mark.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's repository")
def test_another_user_s_repository_is_refused(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """Unless an operator lists its path or its owner; the refusal has the line to add."""
    for path in (project, *project.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    server = make_server(executor="shell", cmd_template="cat file")
    answer = server.submit("t", **isolated(project, tmp_path / "wt", "b"))
    assert answer.status_code == 422, answer.text
    assert f'trusted_repositories = [\\"{project}\\"]' in answer.text, answer.text
    for number, item in enumerate((str(tmp_path), "65534")):
        trusting = make_server(executor="shell", cmd_template="cat file", trusted_repositories=(item,))
        found = trusting.run("t", **isolated(project, tmp_path / f"wt{number}", f"b{number}"))
        assert found["stdout"] == "one\n", found


FOREIGN = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.mark.parametrize(
    ("place", "is_foreign"),
    [
        ("above", False),
        ("above/wt", False),
        pytest.param("above", True, marks=as_root),
        pytest.param("above/wt", True, marks=as_root),
    ],
)
def test_a_path_that_others_could_take_is_refused(
    make_server: MakeServer, project: Path, tmp_path: Path, place: str, *, is_foreign: bool
) -> None:
    """Below a folder of another user, or one that others may write to, and an empty directory of that kind."""
    (tmp_path / place).mkdir(parents=True)
    if is_foreign:
        os.chown(tmp_path / place, FOREIGN, FOREIGN)
    else:
        (tmp_path / place).chmod(0o777)
    answer = make_server().submit("t", **isolated(project, tmp_path / "above" / "wt", "b"))
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert error["field"] == "workspace.worktree_path" and str(tmp_path / place) in error["message"]
    assert not (tmp_path / place / ".git").exists() and git(project, "branch", "--list", "b") == ""


def test_a_sticky_folder_above_is_accepted(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """As with /tmp: what is made there cannot be replaced by others."""
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o1777)
    server = make_server(executor="shell", cmd_template="cat file")
    assert server.run("t", **isolated(project, above / "wt", "b"))["stdout"] == "one\n"


@as_root
@pytest.mark.parametrize("when", ["queued", "made"])
def test_a_directory_that_another_user_made_first(
    make_server: MakeServer, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """In a sticky folder, while the task waits or just before the server makes it: the task fails."""
    above, make = tmp_path / "above", os.mkdir
    above.mkdir()
    above.chmod(0o1777)

    def take() -> None:
        make(above / "wt")
        os.chown(above / "wt", FOREIGN, FOREIGN)

    def late(path: Any, *arguments: Any, **more: Any) -> None:
        if path == above / "wt":
            take()
        make(path, *arguments, **more)

    server = make_server(max_concurrency=1, **HOLD)
    server.submitted("busy", **shared(tmp_path, tmp_path))
    server.running("busy")
    server.submitted("t", **isolated(project, above / "wt", "b"))
    if when == "queued":
        take()
    else:
        monkeypatch.setattr(os, "mkdir", late)
    (tmp_path / "go-busy").touch()
    found = server.ended("t")
    assert found["message"].startswith("isolated worktree setup failed: "), found
    assert "belongs to another user" in found["message"], found
    assert list((above / "wt").iterdir()) == []


def test_a_repository_with_a_link_at_a_name_of_ours(make_server: MakeServer, project: Path, tmp_path: Path) -> None:
    """The worktree's ``.git`` is written to a new file of an unknown name: what a tracked link leads to stays."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (project / ".git.new").symlink_to(precious)
    git(project, "add", ".git.new")
    git(project, "commit", "-q", "-m", "link")
    server = make_server(executor="shell", cmd_template="git status --porcelain; cat .git")
    found = server.run("t", **isolated(project, tmp_path / "wt", "b"))
    assert found["stdout"] == f"gitdir: {project}/.git/worktrees/wt\n", found
    assert precious.read_text() == "mine"
