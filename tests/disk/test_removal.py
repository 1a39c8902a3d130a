"""Removal takes everything that is in the folder and nothing that is outside it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from debug_server.disk import Leftover, empty_folder, list_mounts, release_entry, remove_tree

_DEEP = 2000
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting and chattr need root")


def _bind(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", source, target], check=True)


def _whole(host: Path) -> bool:
    return (host / "precious").read_text() == "data" and (host / "sub" / "more").read_text() == "data"


def _deep(top: Path, levels: int = _DEEP) -> None:
    """Folders inside each other, further down than a path can name; the last one holds a file."""
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


def _while(disturb: Callable[[], None], act: Callable[[], list[Leftover]]) -> list[Leftover]:
    """What ``act`` returns while a thread does ``disturb`` again and again."""
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            disturb()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        return act()
    finally:
        done.set()
        thread.join()


def test_every_kind_of_entry(doomed: Path, host: Path, system_call: str) -> None:
    """Files, links (also to folders outside), pipes, sockets and odd names go; what links point to stays."""
    (doomed / "a" / "b").mkdir(parents=True)
    (doomed / "a" / "file\udcff\n").write_text("x")
    (doomed / "a" / "to-host").symlink_to(host)
    (doomed / "a" / "nowhere").symlink_to("/nonexistent/x")
    os.mkfifo(doomed / "a" / "b" / "pipe")
    assert remove_tree(doomed) == []
    assert not doomed.exists() and _whole(host)
    assert remove_tree(doomed) == []
    (doomed.parent / "link").symlink_to(host)
    assert remove_tree(doomed.parent / "link") == []
    assert not (doomed.parent / "link").is_symlink() and _whole(host)


def test_an_emptied_folder_stays(doomed: Path, host: Path, system_call: str) -> None:
    """Only what is in it goes."""
    (doomed / "a" / "b").mkdir(parents=True)
    (doomed / "to-host").symlink_to(host)
    assert empty_folder(doomed) == []
    assert doomed.is_dir() and not any(doomed.iterdir()) and _whole(host)


def test_two_thousand_folders_inside_each_other(doomed: Path) -> None:
    """Deeper than Python calls functions, than a path is long and than descriptors may be open."""
    _deep(doomed)
    assert remove_tree(doomed) == []
    assert not doomed.exists()


def test_two_who_remove_at_once(doomed: Path) -> None:
    """Somebody else removing the same folder is no error for either."""
    for number in range(200):
        (doomed / str(number) / "x" / "y").mkdir(parents=True)
    found: list[list[Leftover]] = []
    threads = [threading.Thread(target=lambda: found.append(remove_tree(doomed))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[]] * 4 and not doomed.exists()


def test_a_link_in_a_path_that_is_real(doomed: Path, host: Path, system_call: str) -> None:
    """Where the caller has resolved the path, a folder above that became a link is refused."""
    (doomed / "in").symlink_to(host)
    (left,) = remove_tree(doomed / "in" / "sub", no_links=True)
    assert left.path == doomed / "in" / "sub" and _whole(host)
    (doomed / "real" / "x").mkdir(parents=True)
    assert remove_tree(doomed / "real" / "x", no_links=True) == []
    assert not (doomed / "real" / "x").exists()


def test_a_folder_that_is_swapped_for_a_link(doomed: Path, host: Path, system_call: str) -> None:
    """A folder that turns into a link to the host's data and back, all the time, does not take us there."""
    bait, aside = doomed / "bait", doomed.parent / "aside"
    (bait / "sub").mkdir(parents=True)

    def swap() -> None:
        for step in (
            lambda: (bait / "sub").mkdir(parents=True),
            lambda: bait.rename(aside),
            lambda: bait.symlink_to(host),
            bait.unlink,
            lambda: aside.rename(bait),
        ):
            with suppress(OSError):  # we lost the race this time
                step()

    for _ in range(50):
        _while(swap, lambda: empty_folder(doomed))
        assert _whole(host)


@needs_root
def test_mounts_are_taken_away_and_never_crossed(doomed: Path, host: Path, system_call: str) -> None:
    """Bind mounts of folders and files, on top of each other and over the folder itself: the host keeps its data."""
    _bind(host, doomed / "a" / "m")
    _bind(host, doomed / "a" / "m" / "sub")
    (doomed / "file").write_text("")
    subprocess.run(["mount", "--bind", host / "precious", doomed / "file"], check=True)
    _bind(host, doomed / "twice")
    _bind(host, doomed / "twice")
    subprocess.run(["mount", "-t", "tmpfs", "none", doomed], check=True)
    assert remove_tree(doomed) == []
    assert not doomed.exists() and _whole(host) and list_mounts(doomed.parent) == []


@needs_root
def test_a_busy_mount(doomed: Path, host: Path) -> None:
    """A process that works in a mount does not keep it there."""
    _bind(host, doomed / "m")
    with subprocess.Popen(["sleep", "600"], cwd=doomed / "m") as process:
        try:
            assert remove_tree(doomed) == []
            assert not doomed.exists() and _whole(host)
        finally:
            process.kill()


@needs_root
def test_a_mount_that_appears_meanwhile(doomed: Path, host: Path, system_call: str) -> None:
    """Whoever mounts while we remove loses the mount, not the host's data."""
    for number in range(300):
        (doomed / str(number)).mkdir()

    def disturb() -> None:
        for name in ("0", "150", "299"):
            subprocess.run(["mount", "--bind", host, doomed / name], capture_output=True, check=False)

    _while(disturb, lambda: remove_tree(doomed))
    assert _whole(host)
    assert remove_tree(doomed) == [] and not doomed.exists() and _whole(host)


_SHARED = """
import subprocess, sys
from pathlib import Path
from debug_server.disk import remove_tree
from debug_server.disk.mounts import detach
doomed = Path(sys.argv[1])
for act in (remove_tree, detach):
    (doomed / "all").mkdir(parents=True)
    subprocess.run(["mount", "--rbind", "/", doomed / "all"], check=True)
    before = Path("/proc/self/mountinfo").read_text().splitlines()
    act(doomed if act is remove_tree else doomed / "all")
    assert Path("/proc/self/status").exists(), "the host's /proc was unmounted"
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(doomed) in line]
"""


@needs_root
def test_a_copy_of_everything_where_mounts_are_shared(doomed: Path) -> None:
    """``mount --rbind /`` makes peers of the host's mounts: unmounting the copy leaves the originals."""
    words = ["unshare", "--mount", "--propagation", "shared", sys.executable, "-c", _SHARED, os.fspath(doomed)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@needs_root
def test_attributes_deep_below(doomed: Path) -> None:
    """``chattr +i`` and ``+a`` on files and folders, also on the folder itself, are taken back."""
    deep = doomed / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "fixed").write_text("x")
    (deep / "growing").write_text("x")
    for word, path in (("+i", deep / "fixed"), ("+a", deep / "growing"), ("+i", deep), ("+a", doomed / "a")):
        if subprocess.run(["chattr", word, path], capture_output=True, check=False).returncode:
            pytest.skip("this file system has no attributes")
    subprocess.run(["chattr", "+i", doomed], check=True)
    with pytest.raises(PermissionError):
        doomed.rename(doomed.with_name("elsewhere"))
    assert release_entry(doomed) == []
    moved = doomed.rename(doomed.with_name("elsewhere"))
    subprocess.run(["chattr", "+i", moved], check=True)
    assert remove_tree(moved) == []
    assert not moved.exists()


_PLAIN = """
import os, sys
from pathlib import Path
from debug_server.disk import remove_tree
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for item in remove_tree(Path(sys.argv[1])):
    print(item)
"""


def _as_plain_user(doomed: Path) -> str:
    if os.geteuid() == 0:
        for path in (doomed, *doomed.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        os.chown(doomed.parent, 65534, 65534)
    words = [sys.executable, "-c", _PLAIN, os.fspath(doomed)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plain_user_takes_permissions_back(open_place: Path) -> None:
    """Folders without any permission, inside each other, go as well."""
    doomed = open_place / "doomed"
    (doomed / "a" / "b").mkdir(parents=True)
    (doomed / "a" / "b" / "file").write_text("x")
    for path in (doomed / "a" / "b" / "file", doomed / "a" / "b", doomed / "a", doomed):
        path.chmod(0)
    assert _as_plain_user(doomed) == ""
    assert not doomed.exists()


@needs_root
def test_what_a_plain_user_cannot_unmount_stays(open_place: Path, host: Path) -> None:
    """A mount of root's in a plain user's folder is neither entered nor forgotten: the rest goes, this is told."""
    doomed = open_place / "doomed"
    os.chown(host, 65534, 65534)
    os.chown(host / "precious", 65534, 65534)
    (doomed / "a" / "other").mkdir(parents=True)
    (doomed / "b").mkdir()
    for path in (doomed, *doomed.rglob("*")):
        os.chown(path, 65534, 65534)
    _bind(host, doomed / "a" / "m")
    told = _as_plain_user(doomed)
    assert str(doomed / "a" / "m") in told and "mounted" in told
    assert _whole(host) and sorted(path.name for path in doomed.rglob("*") if "m" not in path.parts) == ["a"]
