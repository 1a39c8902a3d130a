"""Collecting what a command left."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError
from debug_server.model import ArtifactKind
from debug_server.worktrees import globs
from debug_server.worktrees.artifact_files import copy_artifacts


def test_collects_with_kind_size_and_hash(tmp_path: Path) -> None:
    """Files are copied under their names, with size, sha256 and a guess of what they are."""
    work = tmp_path / "work"
    files = {
        "junit-1.xml": (b'<?xml version="1.0"?><testsuites/>', ArtifactKind.JUNIT),
        "cov/coverage.xml": (b'<?xml version="1.0"?><coverage/>', ArtifactKind.COVERAGE),
        ".coverage": (b"SQLite format 3\0", ArtifactKind.COVERAGE),
        "core.12": (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x04\x00" + bytes(50), ArtifactKind.CORE_DUMP),
        "prog": (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00" + bytes(50), ArtifactKind.CUSTOM),
        "out/data.txt": (b"data", ArtifactKind.CUSTOM),
    }
    for name, (content, _) in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(content)
    found, refused = copy_artifacts(
        work, ["*.xml", "**/coverage.xml", ".cov*", "core.*", "prog", "out/**/*"], tmp_path / "to"
    )
    assert refused == []
    assert {item.name: item.kind for item in found} == {name: kind for name, (_, kind) in files.items()}
    for item in found:
        content = files[item.name][0]
        assert item.path.read_bytes() == content
        assert (item.size, item.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_refuses_what_leads_out(tmp_path: Path) -> None:
    """Links out of the workspace and things that are no files are refused by name; links inside are followed."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").write_text("s")
    (work / "real").write_text("r")
    (work / "out").symlink_to("../secret")
    (work / "folder").symlink_to("..")
    (work / "in").symlink_to("real")
    (work / "dangling").symlink_to("nowhere")
    os.mkfifo(work / "pipe")
    found, refused = copy_artifacts(work, ["*", "folder/*"], tmp_path / "to")
    assert {item.name for item in found} == {"real", "in"}
    assert {"out", "folder", "dangling", "pipe", "folder/secret"} <= {item.name for item in refused}
    assert not (tmp_path / "to" / "out").exists()


def test_any_name_and_any_depth(tmp_path: Path) -> None:
    """A name that is no UTF-8 is written out, so that it can be stored; ``**`` is everything."""
    work = tmp_path / "work"
    (work / "a" / "b").mkdir(parents=True)
    for name in (b"out\xff", b"a/b/deep"):
        Path(os.fsdecode(os.fsencode(work) + b"/" + name)).write_text("x")
    found, refused = copy_artifacts(work, ["**"], tmp_path / "to")
    assert ({item.name for item in found}, refused) == ({"out\\xff", "a/b/deep"}, [])
    assert all(item.path.read_text() == "x" and item.name.encode() for item in found)


def test_links_that_lead_nowhere_or_to_folders(tmp_path: Path) -> None:
    """A loop of links, also one that would lead out, and a link to a folder are refused by name; the rest is kept."""
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    (work / "folder" / "inner.x").write_text("i")
    (work / "good.x").write_text("g")
    (tmp_path / "secret").write_text("s")
    (work / "loop.x").symlink_to("loop.x")
    (work / "there.x").symlink_to("back.x")
    (work / "back.x").symlink_to("there.x")
    (work / "up").symlink_to("..")
    (work / "sly.x").symlink_to("loop.x/../up/secret")
    (work / "folder.x").symlink_to("folder")
    found, refused = copy_artifacts(work, ["*.x", "*/*.x", "loop.x/*"], tmp_path / "to")
    assert [item.name for item in found] == ["folder.x/inner.x", "folder/inner.x", "good.x"]
    reasons = {item.name: item.reason for item in refused}
    assert sorted(reasons) == ["back.x", "folder.x", "loop.x", "sly.x", "there.x"]
    assert "regular file" in reasons["folder.x"] and all(
        "cannot be read" in reasons[name] for name in ("loop.x", "sly.x")
    )


def test_folders_that_cannot_be_listed(tmp_path: Path) -> None:
    """Folders deeper than Python's recursion and longer than a path may be: what can be reached is kept, the first
    that cannot be is named, and a name that cannot exist matches nothing."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "top.x").write_text("t")
    _dig(work, "d", 1200)
    _dig(work, "n" * 250, 20)
    try:
        found, refused = copy_artifacts(work, ["**/*.x", "y" * 300, "z" * 300 + "/*"], tmp_path / "to")
    finally:
        subprocess.run(["rm", "-rf", str(work), str(tmp_path / "to")], check=True)
    assert {item.name for item in found} == {"top.x", "d/" * 1200 + "deep.x"}
    (reason,) = [item.reason for item in refused]
    assert reason == "it cannot be read: File name too long"


def _dig(root: Path, name: str, depth: int) -> None:
    """Folders inside each other, each made from within the last; a file in the innermost."""
    here = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("deep.x", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


def test_patterns_that_would_never_end(tmp_path: Path) -> None:
    """Links to their own folder are a million ways, and ``**`` a thousand times as many states: both come to an end.

    Not 2^40 ways, over forty links: a path walk that the kernel begins anew counts its links twice, and forty are all
    that it follows.
    """
    work = tmp_path / "work"
    (work / "real").mkdir(parents=True)
    for name in ("a.x", "real/b.x"):
        (work / name).write_text("x")
    (work / "one").symlink_to(".")
    (work / "two").symlink_to(".")
    found, refused = copy_artifacts(work, ["*/" * 19 + "never", "**/" * 1300 + "*.x"], tmp_path / "to")
    assert [item.name for item in found] == ["a.x", "real/b.x"]
    (reason,) = [item.reason for item in refused]
    assert "folders are behind links" in reason


def test_what_lies_behind_links_costs_nothing_of_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many folders behind a link are told of once, and everything that is really there is found."""
    monkeypatch.setattr(globs, "_MAX_LINKED", 3)
    work, elsewhere = tmp_path / "work", tmp_path / "work" / ".store"
    for folder in [*(work / name / "sub" for name in "adyz"), *(elsewhere / str(number) for number in range(9))]:
        folder.mkdir(parents=True)
    for name in "adyz":
        (work / name / "sub" / "r.xml").write_text("x")
    (work / "m").symlink_to(elsewhere)
    told: list[str] = []
    found = set(globs.matches(work, "[a-z]/*/*.xml", lambda folder, error: told.append(str(error))))
    assert found == {f"{name}/sub/r.xml" for name in "adyz"}
    assert len(told) == 1 and "folders are behind links" in told[0]


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "", ".", "a/../../b", "**.xml", "a\0b", "**/" * 1400 + "x"])
def test_pattern_is_checked(tmp_path: Path, pattern: str) -> None:
    """A pattern that leaves the workspace, or is none, is refused."""
    with pytest.raises(InvalidInputError, match="artifact pattern"):
        copy_artifacts(tmp_path, [pattern], tmp_path / "to")
