"""Creates gitdirs with their own refs, index and configuration that borrow the objects of another repository."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from debug_server.disk import remove_tree
from debug_server.model import without_credentials
from debug_server.worktrees.locks import scratch_folder

_NO_HEAD = "ref: refs/heads/none"

# checkStat=minimal and trustctime=false: across an overlay mount device, inode and ctime of an unchanged file differ,
# and git would hash every file at the first status.
_CONFIG = """\
[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	logallrefupdates = true
	checkStat = minimal
	trustctime = false
[gc]
	auto = 0
[user]
	name = debug-server
	email = debug-server@localhost
[advice]
	detachedHead = false
"""


def write_gitdir(git_dir: Path, *, objects: Sequence[Path], head: str, remote_url: str | None = None) -> None:
    """Create a gitdir that borrows ``objects``; the remote's address is kept without credentials."""
    (git_dir / "objects" / "info").mkdir(parents=True)
    (git_dir / "refs").mkdir()
    (git_dir / "objects" / "info" / "alternates").write_bytes(b"".join(os.fsencode(path) + b"\n" for path in objects))
    (git_dir / "config").write_text(_CONFIG + _remote(remote_url))
    write_head(git_dir, head)


def write_head(git_dir: Path, head: str) -> None:
    """Point HEAD at a commit (or, as ``ref: NAME``, at a branch)."""
    (git_dir / "HEAD").write_text(f"{head}\n")


def read_head(git_dir: Path) -> str | None:
    """The commit that HEAD names; None when there is no such gitdir."""
    try:
        return (git_dir / "HEAD").read_text().strip()
    except OSError:
        return None


@contextmanager
def scratch_gitdir(objects: Sequence[Path], *, folder: Path | None = None) -> Iterator[Path]:
    """A temporary gitdir for work on a tree whose own ``.git`` is not trusted: its configuration may name programs.

    It is created in ``folder``, where ``remove_abandoned`` finds it after a crash. Without ``folder`` it is created in
    the temporary directory under a random name: another user could create a predictable one first.
    """
    with _temporary_folder() if folder is None else scratch_folder(folder) as place:
        git_dir = place / "git"
        write_gitdir(git_dir, objects=objects, head=_NO_HEAD)
        yield git_dir


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="debug-server-git-"))
    try:
        yield place
    finally:
        remove_tree(place)


def empty_gitdir(folder: Path) -> Path:
    """A permanent gitdir without objects in ``folder``, for work that reads no history."""
    git_dir = folder.absolute() / ".empty.git"  # absolute, because git runs in the workspace
    if not git_dir.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".empty-", dir=folder))
        write_gitdir(fresh / "git", objects=[], head=_NO_HEAD)
        with suppress(OSError):  # another process created it first
            (fresh / "git").rename(git_dir)
        remove_tree(fresh)
    return git_dir


def _remote(url: str | None) -> str:
    if url is None:
        return ""
    shown = without_credentials(url).replace("\\", "\\\\").replace('"', '\\"')
    return f'[remote "origin"]\n\turl = "{shown}"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
