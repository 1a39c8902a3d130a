"""The changes in a workspace, as a patch; of the workspace's own gitdir only the objects are read.

git does not read a repository inside a repository (a clone made by a test, a submodule). Each is compared separately
with what the commit has at its path, and the patches are joined.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import read_bounded
from debug_server.errors import WorktreePoolError
from debug_server.worktrees.git import GitPlace, require, run_git
from debug_server.worktrees.git_dirs import common_of, pointed_dir
from debug_server.worktrees.gitdir import scratch_gitdir
from debug_server.worktrees.index_timestamps import recheck_changed
from debug_server.worktrees.patch_text import quote_headers, replaces_folders
from debug_server.worktrees.submodules import Gitlink, gitlinks_of

_TIMEOUT = 600.0
_PATH_BYTES = 4095  # PATH_MAX without the final NUL: git cannot open longer paths
_UNREAD = "could not open directory"  # a warning: git skips that folder and ends with status 0
_MAX_SHOWN = 80
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
# Python writes its bytecode wherever it runs, and again when it is missing. The repository's .gitignore decides first.
_LITTER = b"**/__pycache__/*.pyc\n**/__pycache__/*.pyc.*\n"
_MAX_EXCLUDES = 1 << 20  # bytes of a list of excluded files
_DIFF = (
    *("diff", "--cached", "--binary", "--full-index", "--no-color", "--no-ext-diff"),
    *("--no-textconv", "--ignore-submodules=none"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A folder that is compared separately."""

    path: Path
    prefix: str  # of the paths in the patch
    tree: str  # the tree object to compare with
    objects: Path  # the object store that has it
    submodules: Mapping[str, Gitlink]  # submodules checked out below the folder, by path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """What a folder contains that git does not read."""

    repositories: list[str]  # the outermost folders with their own ``.git``
    too_long: str | None  # a path that git cannot open, if there is one


def diff_workspace(
    path: Path,
    base_commit: str,
    *,
    objects: Path | None = None,
    index: Path | None = None,
    submodules: Mapping[str, Gitlink] | None = None,
    scratch: Path | None = None,
) -> bytes:
    """The patch that turns ``base_commit`` into the files at ``path``.

    New files are in it, ignored ones and Python's bytecode are not.

    ``index`` may be git's index of the unchanged files; without it every file is read. ``submodules`` are those checked
    out in the workspace; others are empty folders.
    """
    found = objects or _objects_of(path)
    part = _Part(path=path, prefix="", tree=base_commit, objects=found, submodules=submodules or {})
    return _diff(part, index, scratch)


def _diff(part: _Part, index: Path | None, scratch: Path | None) -> bytes:
    with scratch_gitdir([part.objects], folder=scratch) as git_dir:
        place = GitPlace(git_dir=git_dir, work_tree=part.path)
        (git_dir / "info").mkdir()
        (git_dir / "info" / "exclude").write_bytes(_LITTER + _excluded(part.path))
        if index is not None:
            shutil.copy2(index, git_dir / "index")
            recheck_changed(part.path, git_dir / "index")
        elif part.tree != _EMPTY_TREE:
            require(run_git("read-tree", part.tree, place=place), f"reading {part.tree}")
        links = gitlinks_of(place)
        inside = _scan(part.path)
        apart = sorted({*links, *inside.repositories})
        apart = [name for name in apart if not any(name.startswith(f"{other}/") for other in apart)]
        wanted = b"".join(os.fsencode(name) + b"\0" for name in (":/", *(f":(exclude,top,literal){n}" for n in apart)))
        added = run_git(
            *("add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"),
            place=place,
            stdin=wanted,
            timeout=_TIMEOUT,
        )
        if inside.too_long is not None and (not added.ok or _UNREAD in added.stderr):
            raise _too_long(part, inside.too_long)
        require(added, f"reading the changes of {part.path}")
        prefixes = (f"--src-prefix=a/{part.prefix}", f"--dst-prefix=b/{part.prefix}")
        own = _compare(part, place, "--find-renames", *prefixes)
        if b"\nrename from " in own and replaces_folders(own):
            own = _compare(part, place, "--no-renames", *prefixes)  # git apply sees no link go away by a rename
        inner = [_inner(part, name, name in links, place) for name in apart]
    return quote_headers(own) + b"".join(_diff(item, None, scratch) for item in inner if item is not None)


def _excluded(path: Path) -> bytes:
    """What the folder's own repository excludes: files that a build of the project placed there."""
    try:
        return read_bounded(path / ".git" / "info" / "exclude", _MAX_EXCLUDES)
    except OSError:
        return b""


def _compare(part: _Part, place: GitPlace, *options: str) -> bytes:
    return require(run_git(*_DIFF, *options, part.tree, place=place, timeout=_TIMEOUT), f"comparing {part.path}")


def _too_long(part: _Part, name: str) -> WorktreePoolError:
    shown = f"{part.prefix}{name}"[:_MAX_SHOWN]
    return WorktreePoolError(
        f"the changes of {part.path} cannot be compared: the path {shown!r}… exceeds the {_PATH_BYTES} bytes that git "
        "can read: remove that folder, or list it in .gitignore"
    )


def _inner(part: _Part, name: str, linked: bool, place: GitPlace) -> _Part | None:
    """The part at ``name``: a submodule, its empty folder, or a repository that a command created there."""
    below = {
        inner.removeprefix(f"{name}/"): link for inner, link in part.submodules.items() if inner.startswith(f"{name}/")
    }
    tree, objects = _EMPTY_TREE, part.objects
    if (known := part.submodules.get(name)) is not None:
        tree, objects = known.commit, known.objects
    elif not linked:
        before = run_git("rev-parse", "--verify", "--quiet", f"{part.tree}:{name}", place=place)
        tree = before.stdout.decode().strip() if before.ok else _EMPTY_TREE
    path = part.path / name
    if path.is_symlink() or not path.is_dir():
        return None
    return _Part(path=path, prefix=f"{part.prefix}{name}/", tree=tree, objects=objects, submodules=below)


def _scan(root: Path) -> _Contents:
    """Not with os.walk, which recurses: folders may be nested deeper than Python's stack."""
    repositories, too_long = [], None
    waiting = [""]
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while waiting:
            folder = waiting.pop()
            names = _list_folder(top, folder)
            if folder and ".git" in names:
                repositories.append(folder)
                continue
            for name, is_folder in names.items():
                path = f"{folder}/{name}" if folder else name
                if len(os.fsencode(path)) + is_folder > _PATH_BYTES:  # git appends a slash to a folder's name
                    too_long = path
                elif is_folder and name != ".git":
                    waiting.append(path)
    finally:
        os.close(top)
    return _Contents(repositories=repositories, too_long=too_long)


def _list_folder(top: int, folder: str) -> dict[str, bool]:
    """Each name, and whether it is a folder; empty if the folder is gone or unreadable."""
    try:
        opened = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    except OSError:
        return {}
    try:
        with os.scandir(opened) as entries:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:
        return {}
    finally:
        os.close(opened)


def _objects_of(path: Path) -> Path:
    git_dir = path / ".git"
    try:
        if git_dir.exists() and not git_dir.is_dir():
            git_dir = pointed_dir(git_dir)
        objects = common_of(git_dir) / "objects"
    except OSError as error:
        raise WorktreePoolError(f"{error.filename} cannot be read: {error.strerror}") from error
    if not objects.is_dir():
        raise WorktreePoolError(f"{path} is not a workspace: it has no git objects")
    return objects
