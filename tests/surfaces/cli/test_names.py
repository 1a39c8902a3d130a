"""Names that others chose neither replace files nor steer the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError
from debug_server.surfaces.cli import artifact
from debug_server.surfaces.cli.artifact import target_of
from tests.running import ROOT
from tests.surfaces.cli.conftest import Terminal


@pytest.mark.parametrize(
    "name", ["out/.bashrc", "there", "..", "", "-rf", "out/--help", "a\nb", "a\x1b[2J", "a\u202eb"]
)
def test_a_server_chooses_no_dangerous_or_existing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Unless the user names the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").symlink_to("nowhere")
    for output in (None, tmp_path):
        with pytest.raises(InvalidInputError, match="--output FILE"):
            target_of(name, output)
    with pytest.raises(InvalidInputError, match="in /dev"):
        target_of(name, Path("/dev/null"))
    assert target_of("out/new", None) == Path("new") and target_of(name, Path("mine")) == Path("mine")


def test_a_link_that_comes_after_the_check(
    terminal: Terminal, project: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the folder's owner puts one at the artifact's name just before it is written, nothing is written there."""
    keep = ("--artifact", "report.txt", "-f", "--", "sh", "-c", "echo theirs > report.txt")
    terminal("session", "create", "--repository", project(), "--commit", "main")
    (session,) = (row["id"] for row in terminal("--json", "session", "list").items[:1])
    assert terminal("command", "submit", session, *keep).status == 0
    (found,) = [row for row in terminal("--json", "artifact", "list", session).items if row["name"] == "report.txt"]
    precious, link = terminal.folder.with_name("precious"), terminal.folder / "report.txt"
    precious.write_text("mine")

    def checked(name: str, output: Path | None) -> Path:
        target = target_of(name, output)
        link.symlink_to(precious)
        return target

    monkeypatch.setattr(artifact, "target_of", checked)
    done = terminal("artifact", "download", session, found["id"])
    assert (done.status, link.is_symlink(), precious.read_text()) == (2, True, "mine"), done
    assert "exists already" in done.err
    link.unlink()
    done = terminal("artifact", "download", session, found["id"], "--output", "report.txt")
    assert (done.status, link.is_symlink(), precious.read_text()) == (0, False, "mine"), done
    assert link.read_text() == "theirs\n"


def test_the_name_of_a_folder_does_not_steer_the_terminal(tmp_path: Path) -> None:
    """It stands in the line that says which place was taken."""
    folder = tmp_path / "\x1b]0;owned\x07"
    (folder / ".artifacts").mkdir(parents=True)
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
    argv = [sys.executable, "-m", "debug_server", "run", "--quiet", "--", "true"]
    done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert "using the data folder" in done.stderr and "\x1b" not in done.stderr


def test_a_path_without_a_repository_is_not_registered(alone: Terminal) -> None:
    """Neither one that does not exist nor one that is no repository; the error names it."""
    (alone.folder / "plain").mkdir()
    for remote, reason in (("nosuch", "does not exist"), ("plain", "is not the root of a git repository")):
        done = alone("repo", "add", remote)
        assert (done.status, done.err) == (2, f"debug-server: {alone.folder / remote} {reason}\n")
    assert alone("--json", "repo", "list").items == []
