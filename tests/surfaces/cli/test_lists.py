"""What runs, what has ended, and running it again; lists, their order and their JSON."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.running import eventually
from tests.surfaces.cli.conftest import PROGRAM, Done, Terminal


def shown(done: Done) -> list[dict[str, Any]]:
    """The items of a list."""
    assert done.status == 0, done.err
    found: list[dict[str, Any]] = done.items
    return found


def test_what_runs_and_what_ended_is_listed(terminal: Terminal, project: Callable[[], str]) -> None:
    """The newest first, with what each waits for, its repository and its reason; filters and pages."""
    name = project()
    session = terminal("--json", "session", "create", "--repo", name).json["id"]
    ended = terminal("command", "submit", session, "-f", "--", "sh", "-c", "exit 3")
    assert ended.status == 3
    running = terminal("--json", "command", "submit", session, "--", "sleep", "600").json["id"]
    behind = terminal("command", "submit", session, "--", "true")
    assert behind.out.endswith(f"is pending: it waits for {running}\n")
    waiting = int(behind.out.split()[1])
    assert [row["id"] for row in shown(terminal("ps", "--repo", name, "--json"))] == [waiting, running]
    said = terminal("ps", "--session", session)
    assert said.out.splitlines()[0].split() == ["ID", "STATUS", "FOR", "SESSION", "WHERE", "REASON", "COMMAND"]
    assert f"waits for {running}" in said.out and name in said.out and "sleep 600" in said.out
    told = terminal("command", "wait", waiting, "--timeout", "0.1")
    assert told.status == 75 and f"command {waiting} waits for {running}" in told.err
    for number in (waiting, running):
        assert terminal("command", "cancel", number).status == 0
    nothing = terminal("ps", "--repo", name)
    assert (nothing.status, nothing.out) == (0, "") and "no command runs or waits" in nothing.err
    rows = shown(terminal("history", "--repo", name, "--json"))
    assert [row["id"] for row in rows] == [waiting, running, rows[2]["id"]]
    assert [row["id"] for row in shown(terminal("history", "--repo", name, "--status", "failed", "--json"))] == [
        rows[2]["id"]
    ]
    page = terminal("history", "--repo", name, "--limit", "1")
    assert f"there are more: --all, or --after {waiting}" in page.err
    after = shown(terminal("history", "--repo", name, "--after", waiting, "--limit", "1", "--json"))
    assert [row["id"] for row in after] == [running]
    assert "status 3" in terminal("history", "--repo", name, "--all").out
    wrong = terminal("history", "--status", "faild")
    assert (wrong.status, wrong.err) == (2, "debug-server: --status 'faild' is unknown: did you mean 'failed'?\n")


def test_a_command_runs_again(terminal: Terminal, project: Callable[[], str]) -> None:
    """With its output and its status; variables must be given again."""
    session = terminal("--json", "session", "create", "--repo", project(), "--commit", "main").json["id"]
    script = ("sh", "-c", "cat a.txt; echo $WORD; exit 3")
    done = terminal("command", "submit", session, "--env", "WORD=x", "-f", "--", *script)
    command = shown(terminal("command", "list", session, "--json"))[0]["id"]
    refused = terminal("rerun", command)
    assert refused.status == 2 and "WORD" in refused.err
    again = terminal("rerun", command, "--env", "WORD=x")
    assert (again.status, again.out) == (done.status, done.out) == (3, "hello\nx\n"), again.err
    assert terminal("rerun", 10**6).status == 1


def test_a_run_in_a_folder_runs_again_there(alone: Terminal) -> None:
    """Also from another folder of the same data folder, which sees it in its list."""
    (alone.folder / "word").write_text("first\n")
    assert alone("run", "--", "cat", "word").out == "first\n"
    (alone.folder / "word").write_text("second\n")
    data = {"DEBUG_SERVER_PATHS_ARTIFACTS": str(alone.folder / ".artifacts")}
    below = Terminal(folder=alone.folder / "below", variables=data)
    below.folder.mkdir()
    (row,) = shown(below("history", "--json"))
    assert row["directory"] == str(alone.folder)
    again = below("rerun", row["id"])
    assert (again.status, again.out) == (0, "second\n"), again.err


def test_a_run_names_its_folder(alone: Terminal) -> None:
    """--cwd is where it runs; one that does not exist runs nothing."""
    (alone.folder / "below").mkdir()
    assert alone("run", "--quiet", "--cwd", "below", "--", "pwd").out == f"{alone.folder / 'below'}\n"
    wrong = alone("run", "--cwd", "absent", "--", "pwd")
    assert wrong.status == 2 and "--cwd 'absent'" in wrong.err


def test_a_repository_is_removed(terminal: Terminal, project: Callable[[], str]) -> None:
    """Not while a session is open; then it is gone, and what ran in it is not."""
    name = project()
    session = terminal("--json", "session", "create", "--repo", name).json["id"]
    assert terminal("command", "submit", session, "-f", "--", "true").status == 0
    refused = terminal("repo", "remove", name)
    assert refused.status == 1 and f"open sessions ({session})" in refused.err
    assert terminal("session", "close", session).status == 0
    assert [row["status"] for row in shown(terminal("session", "list", "--repo", name, "--json"))] == ["completed"]
    assert terminal("repo", "remove", name).out == f"repository {name} is removed\n"
    assert terminal("repo", "show", name).status == 1
    assert name in terminal("history", "--session", session).out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["sesion", "list"], 2, "Did you mean 'session'?"),
        (["cancel", "1"], 2, "Did you mean 'command cancel', 'tasks cancel'?"),
        (["session", "lst"], 2, "Did you mean 'list'"),
        (["session", "list", "--lmit", "1"], 2, "--limit"),
        (["run", "--timout", "1", "--", "true"], 2, "--timeout"),
        (["session", "list", "--limit", "0"], 2, "0"),
        (["session", "list", "--after", "-1"], 2, "-1"),
        (["session", "list", "--status", "opn"], 2, "did you mean 'open'?"),
        (["session", "show", "many"], 2, "many"),
        (["command", "wait", "1", "--timeout", "soon"], 2, "--timeout 'soon'"),
        (["run", "--timeout", "soon", "--", "true"], 2, "--timeout 'soon'"),
        (["run", "--memory", "some", "--", "true"], 2, "--memory 'some'"),
        (["env", "gc", "--budget", "some"], 2, "--budget 'some'"),
        (["serve", "--grace", "soon"], 2, "--grace 'soon'"),
    ],
)
def test_a_wrong_word_is_named(alone: Terminal, words: list[str], status: int, said: str) -> None:
    """Commands, options and values at every level: status 2, and what may be meant."""
    done = alone(*words)
    assert (done.status, said in done.err) == (status, True), done.err
    assert "Traceback" not in done.err


def test_durations_have_units_everywhere(alone: Terminal) -> None:
    """A limit in seconds takes what other durations take."""
    for text in ("0.2", "0.2s", "0.004m"):
        assert alone("run", "--quiet", "--timeout", text, "--", "sleep", "600").status == 124
    assert alone("run", "--quiet", "--timeout", "1h", "--memory", "256M", "--", "true").status == 0


@pytest.mark.parametrize("ignored", [False, True], ids=["foreground", "background"])
def test_a_follower_ends_on_sigterm(terminal: Terminal, project: Callable[[], str], ignored: bool) -> None:
    """Its command is cancelled, also where SIGINT is ignored, as in a background job of a script."""
    name = project()
    argv = [*PROGRAM, "command", "run", "--repo", name, "--", "sleep", "600"]
    follower = subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *argv] if ignored else argv,
        cwd=terminal.folder,
        env=terminal.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(
            lambda: [row for row in shown(terminal("ps", "--repo", name, "--json")) if row["status"] == "running"],
            what="the command",
        )
        follower.terminate()
        _, said = follower.communicate(timeout=100)
    finally:
        follower.kill()
    assert follower.returncode == 130 and "was cancelled" in said, said
    assert [row["status"] for row in shown(terminal("history", "--repo", name, "--json"))] == ["cancelled"]


def test_the_home_folder_is_shown_as_such(alone: Terminal, tmp_path: Path) -> None:
    """A run elsewhere is listed with its folder."""
    place = tmp_path / "place"
    place.mkdir()
    assert alone("run", "--quiet", "--cwd", place, "--", "true").status == 0
    assert str(place) in alone("history").out
    assert os.fspath(alone.folder) not in alone("history").out
