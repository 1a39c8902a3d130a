"""Patches: everything git can say, all or nothing, and nothing outside the tree."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from debug_server.errors import PatchApplicationError
from debug_server.worktrees import SessionPatch, apply_patch, diff_workspace, patches
from tests.worktrees.places import fingerprint, git, make_remote

NUMBERS = "".join(f"{number}\n" for number in range(1, 41))


@pytest.fixture
def workspace(base: Path) -> Path:
    """A checkout with files of every kind."""
    remote = make_remote(base / "work")
    (remote.path / "link").symlink_to("text")
    remote.commit(
        {
            "text": NUMBERS,
            "dos": b"one\r\ntwo\r\n",
            "blob": bytes(range(256)) * 4,
            "bare": b"no newline",
            "d/e/deep": "deep\n",
            ".gitattributes": "*.crlf text eol=crlf\n",
            "note.crlf": "a\nb\n",
        }
    )
    git("checkout", "-q", "-f", "HEAD", cwd=remote.path)
    (remote.path / "note.crlf").unlink()
    git("checkout", "-q", "note.crlf", cwd=remote.path)
    return remote.path


def edit_text(path: Path) -> None:
    (path / "text").write_text(NUMBERS.replace("20\n", "twenty\n"))


def crlf_file(path: Path) -> None:
    (path / "dos").write_bytes(b"one\r\n2\r\n")


def crlf_attribute(path: Path) -> None:
    (path / "note.crlf").write_bytes(b"a\r\nc\r\n")


def binary(path: Path) -> None:
    (path / "blob").write_bytes(bytes(range(255, -1, -1)) * 4)


def new_binary(path: Path) -> None:
    (path / "fresh").write_bytes(os.urandom(5000))


def end_of_file(path: Path) -> None:
    (path / "bare").write_bytes(b"no newline either")
    (path / "text").write_text(NUMBERS.rstrip())


def rename(path: Path) -> None:
    (path / "d" / "e" / "deep").rename(path / "deep moved")
    (path / "text").rename(path / "texts")
    (path / "texts").write_text(NUMBERS.replace("3\n", "three\n", 1))


def delete(path: Path) -> None:
    (path / "d" / "e" / "deep").unlink()


def mode(path: Path) -> None:
    (path / "text").chmod(0o755)


def retarget(path: Path) -> None:
    (path / "link").unlink()
    (path / "link").symlink_to("/etc/passwd")


def file_to_link(path: Path) -> None:
    (path / "dos").unlink()
    (path / "dos").symlink_to("text")


def names(path: Path) -> None:
    for name in ("with space", 'quo"te', "new\nline", "\udcff", "--- a"):
        (path / name).write_text("--- ../../outside\n+++ /etc/passwd\n")


def empty_file(path: Path) -> None:
    (path / "empty").touch()


CHANGES = [
    *(edit_text, crlf_file, crlf_attribute, binary, new_binary, end_of_file, rename, delete, mode),
    *(retarget, file_to_link, names, empty_file),
]


@pytest.mark.parametrize("change", CHANGES)
def test_round_trip(workspace: Path, base: Path, change: Callable[[Path], None]) -> None:
    """A change becomes a patch; the patch on the clean commit makes the same files, and the same patch."""
    commit = git("rev-parse", "HEAD", cwd=workspace)
    clean = fingerprint(workspace)
    change(workspace)
    changed, patch = fingerprint(workspace), SessionPatch(diff_workspace(workspace, commit))
    git("clean", "-ffdxq", cwd=workspace)
    git("reset", "-q", "--hard", cwd=workspace)
    assert fingerprint(workspace) == clean
    kept = apply_patch(workspace, patch, patches_dir=base / "patches")
    assert {name for name, entry in fingerprint(workspace).items() if entry[0] != "folder"} == {
        name for name, entry in changed.items() if entry[0] != "folder"
    }
    assert all(fingerprint(workspace)[name] == entry for name, entry in changed.items() if entry[0] != "folder")
    assert kept == base / "patches" / f"{patch.sha256[:12]}.patch"
    assert kept.read_bytes() == patch.data
    assert diff_workspace(workspace, commit) == patch.data


def test_plain_diff_without_git_header(workspace: Path, base: Path) -> None:
    """What diff -u prints applies too, text and all."""
    patch = SessionPatch("--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n", description="by hand")
    apply_patch(workspace, patch, patches_dir=base / "patches")
    assert (workspace / "text").read_text().startswith("1\ntwo\n3\n")


def test_failure_names_file_hunk_and_line(workspace: Path, base: Path) -> None:
    """A hunk that does not fit is named with its file, number and line, and no other file is touched."""
    diff = (
        "diff --git a/d/e/deep b/d/e/deep\n--- a/d/e/deep\n+++ b/d/e/deep\n@@ -1 +1 @@\n-deep\n+changed\n"
        "diff --git a/text b/text\n--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"
        "@@ -20,3 +20,3 @@\n 20\n-wrong\n+right\n 22\n"
    )
    before = fingerprint(workspace)
    with pytest.raises(PatchApplicationError, match=r"text \(hunk 2, line 20\)"):
        apply_patch(workspace, SessionPatch(diff), patches_dir=base / "patches")
    assert fingerprint(workspace) == before


@pytest.mark.parametrize(
    ("diff", "complaint"),
    [
        ("", "names no file"),
        ("this is no patch\n", "names no file"),
        ("\x1b[1mdiff --git a/text b/text\x1b[m\n", "--no-color"),
        ("diff --git text text\n--- text\n+++ text\n@@ -1 +1 @@\n-1\n+one\n", "--src-prefix=a/"),
        ("--- a/absent\n+++ b/absent\n@@ -1 +1 @@\n-x\n+y\n", "absent: No such file"),
        ("--- /dev/null\n+++ b/text\n@@ -0,0 +1 @@\n+x\n", "text: already exists"),
        ("diff --git a/blob b/blob\nindex 1..2 100644\nBinary files a/blob and b/blob differ\n", "blob"),
    ],
)
def test_unusable_patch(workspace: Path, base: Path, diff: str, complaint: str) -> None:
    """A patch that cannot be used says why, and changes nothing."""
    before = fingerprint(workspace)
    with pytest.raises(PatchApplicationError, match=complaint):
        apply_patch(workspace, SessionPatch(diff), patches_dir=base / "patches")
    assert fingerprint(workspace) == before


@pytest.mark.parametrize(
    "diff",
    [
        'diff --git "' + '\\"' * 400_000 + "\n",
        "--- a/text\n+++ b/text\n@@ -" + "9" * 5000 + " +1 @@\n",
        f"--- /dev/null\n+++ b/{'a/' * 200_000}b\n@@ -0,0 +1 @@\n+x\n",
    ],
    ids=["quotes", "digits", "folders"],
)
def test_patch_that_wants_to_keep_us_busy(workspace: Path, base: Path, diff: str) -> None:
    """What is too long to be meant is refused in the time that it takes to read it: patterns hold the interpreter."""
    with pytest.raises(PatchApplicationError):
        apply_patch(workspace, SessionPatch(diff), patches_dir=base / "patches")


@pytest.mark.parametrize("size", ["modest", "unpacked", "named"])
def test_memory_of_a_patch(workspace: Path, base: Path, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short patch cannot take all memory, neither by what it unpacks to nor by the files that it names."""
    monkeypatch.setattr(patches, "_MAX_MEMORY", 96 << 20)
    with (workspace / "large").open("wb") as file:
        file.truncate((4 if size != "named" else 200) << 20)
    copies = 1 if size == "modest" else 60
    line = "diff --git a/large b/copy{0}\nsimilarity index 100%\ncopy from large\ncopy to copy{0}\n"
    diff = "".join(line.format(number) for number in range(copies))
    before = sorted(path.name for path in workspace.iterdir())
    if size == "modest":
        apply_patch(workspace, SessionPatch(diff), patches_dir=base / "patches")
        assert (workspace / "copy0").stat().st_size == 4 << 20
        return
    with pytest.raises(PatchApplicationError, match="need more than 96 MiB of memory"):
        apply_patch(workspace, SessionPatch(diff), patches_dir=base / "patches")
    assert sorted(path.name for path in workspace.iterdir()) == before


def test_stored_patch_is_private(workspace: Path, base: Path) -> None:
    """Other users cannot read a stored patch, also in a folder that they may enter."""
    (base / "open").mkdir(mode=0o755)
    added = "--- /dev/null\n+++ b/fresh\n@@ -0,0 +1 @@\n+x\n"
    kept = apply_patch(workspace, SessionPatch(added), patches_dir=base / "open")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_refused_patch_is_not_stored(workspace: Path, base: Path) -> None:
    """A patch that does not apply leaves no file: nothing would ever remove it."""
    with pytest.raises(PatchApplicationError):
        apply_patch(
            workspace, SessionPatch("--- a/text\n+++ b/text\n@@ -1 +1 @@\n-no\n+x\n"), patches_dir=base / "kept"
        )
    assert [path.name for path in (base / "kept").iterdir()] == [".empty.git"]


OUTSIDE = [
    "../outside",
    "d/../../outside",
    "/tmp/outside",
    ".git/config",
    ".GIT/config",
    "d/.Git/hooks/x",
    "git~1/config",
    ".git./x",
    ".g\u200cit/x",
    "link/below",
]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("form", ["create", "rename", "plain"])
def test_paths_that_leave_the_tree(workspace: Path, base: Path, name: str, form: str) -> None:
    """No form of header gets a path outside the tree, into git's own files or through a link past the check."""
    (workspace / "link").unlink()
    (workspace / "link").symlink_to(base)
    prefixed = name if name.startswith("/") else f"b/{name}"
    added = "@@ -0,0 +1 @@\n+x\n"
    diff = {
        "create": f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ {prefixed}\n{added}",
        "rename": f"diff --git a/text b/{name}\nsimilarity index 100%\nrename from text\nrename to {name}\n",
        "plain": f"--- /dev/null\n+++ {prefixed}\n{added}",
    }[form]
    before = fingerprint(workspace)
    with pytest.raises(PatchApplicationError):
        apply_patch(workspace, SessionPatch(diff), patches_dir=base / "patches")
    assert fingerprint(workspace) == before
    assert not (base / "outside").exists()
    assert not (base / "below").exists()


def test_link_made_by_the_patch_itself(workspace: Path, base: Path) -> None:
    """A patch cannot create a link and then write through it."""
    diff = (
        f"diff --git a/door b/door\nnew file mode 120000\n--- /dev/null\n+++ b/door\n@@ -0,0 +1 @@\n+{base}\n"
        "\\ No newline at end of file\n"
        "diff --git a/door/x b/door/x\nnew file mode 100644\n--- /dev/null\n+++ b/door/x\n@@ -0,0 +1 @@\n+x\n"
    )
    with pytest.raises(PatchApplicationError):
        apply_patch(workspace, SessionPatch(diff), patches_dir=base / "patches")
    assert not (base / "x").exists()
    assert not (workspace / "door").is_symlink()
