"""Hunks as people and models write them: applied where their lines are, or refused with the lines that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from debug_server.errors import PatchApplicationError
from debug_server.worktrees import SessionPatch, apply_patch
from tests.worktrees.places import fingerprint, make_remote

LINES = [f"line {number}" for number in range(1, 31)]
TEXT = "".join(f"{line}\n" for line in LINES)


@pytest.fixture
def workspace(base: Path) -> Path:
    """A checkout of some texts."""
    remote = make_remote(base / "work")
    twice = "def one():\n    return 1\n\ndef two():\n    return 1\n"
    remote.commit({"text": TEXT, "twice": twice, "bare": "first\nlast", "dos": "one\r\ntwo\r\n", "empty": ""})
    return remote.path


def patched(workspace: Path, diff: str) -> None:
    """Apply a patch that a model wrote."""
    apply_patch(workspace, SessionPatch(diff), patches_dir=workspace.parent / "patches")


def head(name: str) -> str:
    """The header of a file's patch."""
    return f"--- a/{name}\n+++ b/{name}\n"


CHANGED = TEXT.replace("line 7\n", "seven\n")
HUNKS = {
    "no context after the change": "@@ -5,3 +5,3 @@\n line 5\n line 6\n-line 7\n+seven\n",
    "no context before the change": "@@ -7,3 +7,3 @@\n-line 7\n+seven\n line 8\n line 9\n",
    "counts too small": "@@ -6,2 +6,2 @@\n line 6\n-line 7\n+seven\n line 8\n",
    "counts too large": "@@ -6,9 +6,9 @@\n line 6\n-line 7\n+seven\n line 8\n",
    "a wrong line": "@@ -20,3 +20,3 @@\n line 6\n-line 7\n+seven\n line 8\n",
    "a wrong line, and nothing around it": "@@ -20 +20 @@\n-line 7\n+seven\n",
    "no numbers": "@@ ... @@\n line 6\n-line 7\n+seven\n line 8\n",
    "no newline at the end of the patch": "@@ -6,3 +6,3 @@\n line 6\n-line 7\n+seven",
    "a fence around it": "@@ -6,3 +6,4 @@\n line 6\n-line 7\n+seven\n```\n",
    "blank lines behind it": "@@ -6,3 +6,4 @@\n line 6\n-line 7\n+seven\n\n\n",
}


@pytest.mark.parametrize("kind", HUNKS)
def test_placed_by_its_lines(workspace: Path, kind: str) -> None:
    """Whatever its header says, a hunk whose lines are at one place only is applied there."""
    patched(workspace, head("text") + HUNKS[kind])
    assert (workspace / "text").read_text() == CHANGED


def test_several_hunks_and_files(workspace: Path) -> None:
    """Later hunks and files are found although the counts before them are wrong; new files need no place."""
    diff = (
        f"diff --git a/text b/text\n{head('text')}@@ -1,9 +1,9 @@\n line 1\n-line 2\n+two\n+and more\n"
        "@@ -20,2 +20,2 @@\n line 22\n-line 23\n"
        "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1,7 @@\n+one\n+two\n"
        f"diff --git a/bare b/bare\n{head('bare')}@@ -1,4 +1,4 @@\n first\n-last\n+changed\n"
        f"diff --git a/empty b/empty\n{head('empty')}@@ -1,2 +1,5 @@\n+filled\n"
    )
    patched(workspace, diff)
    wanted = TEXT.replace("line 2\n", "two\nand more\n").replace("line 23\n", "")
    assert (workspace / "text").read_text() == wanted
    assert (workspace / "new").read_text() == "one\ntwo\n"
    assert (workspace / "bare").read_text() == "first\nchanged\n"
    assert (workspace / "empty").read_text() == "filled\n"


def test_diff_without_context(workspace: Path) -> None:
    """What `git diff -U0` prints: the header says where the lines go."""
    patched(workspace, head("text") + "@@ -3,0 +4,2 @@\n+more\n+and more\n@@ -7 +9 @@\n-line 7\n+seven\n")
    assert (workspace / "text").read_text() == CHANGED.replace("line 3\n", "line 3\nmore\nand more\n")


def test_equal_places(workspace: Path) -> None:
    """Of two equal places the one that the header names is meant; if it names another one, the hunk is refused."""
    hunk = "-    return 1\n+    return 2\n"
    with pytest.raises(PatchApplicationError, match=r"twice \(hunk 1, line 3\): .* several places \(lines 2, 5\)"):
        patched(workspace, head("twice") + f"@@ -3,4 +3,4 @@\n{hunk}")
    patched(workspace, head("twice") + f"@@ -5,4 +5,4 @@\n{hunk}")
    assert (workspace / "twice").read_text() == "def one():\n    return 1\n\ndef two():\n    return 2\n"


@pytest.mark.parametrize(
    ("name", "hunk", "complaint"),
    [
        (
            "text",
            "@@ -6,3 +6,3 @@\n line 6\n-line seven\n+7\n line 8\n",
            r"text \(hunk 1, line 6\): the file does not have 'line seven'; the nearest lines, from line 6, are "
            "'line 6', 'line 7', 'line 8'",
        ),
        ("text", "@@ -1,3 +1,3 @@\n-line  14\n+x\n", r"nearest lines, from line 14, are 'line 14'"),
        ("text", "@@ -90 +90 @@\n-other\n+x\n", r"does not have 'other'"),
        ("text", "@@ -6,3 +6,3 @@\n+7\n", "no line of the file to find its place by"),
        ("dos", "@@ -1,2 +1,2 @@\n one\n-two\n+2\n", "differ in the space or the carriage return"),
        ("empty", "@@ -1 +1 @@\n-x\n+2\n", "does not have 'x'; the file is shorter"),
    ],
)
def test_missing_lines_are_shown(workspace: Path, name: str, hunk: str, complaint: str) -> None:
    """A hunk without a place is refused with the lines that are missing and the nearest that are there."""
    before = fingerprint(workspace)
    with pytest.raises(PatchApplicationError, match=complaint):
        patched(workspace, head(name) + hunk)
    assert fingerprint(workspace) == before


def test_a_path_behind_wrong_counts_is_checked(workspace: Path) -> None:
    """A file that a wrong count hides from the first look is still kept inside the tree."""
    hidden = "--- /dev/null\n+++ b/../outside\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(PatchApplicationError, match="must not leave the repository"):
        patched(workspace, head("text") + f"@@ -6,9 +6,9 @@\n line 6\n-line 7\n+seven\n{hidden}")
    assert (workspace / "text").read_text() == TEXT
    assert not (workspace.parent / "outside").exists()
