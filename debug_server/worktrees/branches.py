"""A git worktree on a branch of a user's repository, for as long as a session lasts.

    add (an existing branch is used as it is) -> in use -> remove (uncommitted changes are kept as a patch)

The branch is never reset, moved or deleted. Commits that no branch would contain afterwards get a ref below KEPT_REFS.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import Leftover, empty_folder, open_folder, remove_tree, write_draft
from debug_server.errors import ConflictError, InvalidInputError, WorktreePoolError
from debug_server.worktrees.git import GitPlace, GitResult, require, run_git
from debug_server.worktrees.git_dirs import common_dir
from debug_server.worktrees.locks import file_lock
from debug_server.worktrees.repository_trust import OWN_USER_ONLY, Trust
from debug_server.worktrees.repository_view import repository_view
from debug_server.worktrees.workspace_diff import diff_workspace

KEPT_REFS = "refs/debug-server/kept"
_HEADS = "refs/heads/"
_TIMEOUT = 120.0
_CREATED = b"made"  # content of the marker file, if add() created the directory; stored on disk, do not change


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchWorktree:
    """Which branch of which repository is checked out where."""

    repository: Path  # its root, a linked worktree of it, or a bare repository
    path: Path
    branch: str
    trust: Trust = OWN_USER_ONLY  # whose repositories may be used


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The result of removing a worktree."""

    removed: bool
    message: str
    patch: Path | None = None  # what was not committed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Registered:
    path: Path
    branch: str | None
    head: str | None


def branch_name(text: str) -> str:
    """The branch that ``text`` names, also as a full ref; InvalidInputError unless git accepts the name."""
    name = text.removeprefix(_HEADS)
    if name.startswith("refs/"):
        raise InvalidInputError(f"{text!r} is not the ref of a branch: those begin with {_HEADS}")
    if name == "HEAD" or name.startswith("-") or not run_git("check-ref-format", f"{_HEADS}{name}").ok:
        raise InvalidInputError(f"{text!r} is not a valid branch name")
    return name


def check_free(tree: BranchWorktree, *, locks_dir: Path) -> None:
    """ConflictError when a worktree that is not ours has the branch or the path."""
    taken = _conflict(tree, _registered(tree, locks_dir), ours=_marker(tree, locks_dir).exists())
    if taken is not None:
        raise ConflictError(taken)


def add(tree: BranchWorktree, *, locks_dir: Path) -> None:
    """Create the worktree, unless an earlier attempt did; WorktreePoolError when it cannot be created."""
    with _locked(tree, locks_dir):
        _check_place(tree)
        registered, mark = _registered(tree, locks_dir), _marker(tree, locks_dir)
        if (taken := _conflict(tree, registered, ours=mark.exists())) is not None:
            raise WorktreePoolError(taken)
        if any(item.path == tree.path for item in registered) and tree.path.is_dir():
            _point_to_repository(tree)
            return
        with _view(tree, locks_dir, writable=True) as place:
            _add(tree, mark, place)


def _check_place(tree: BranchWorktree) -> None:
    try:
        tree.trust.check_place(tree.path)
    except InvalidInputError as error:
        raise WorktreePoolError(str(error)) from error


def _view(tree: BranchWorktree, locks_dir: Path, *, writable: bool = False) -> AbstractContextManager[GitPlace]:
    return repository_view(tree.repository, tree.trust, folder=locks_dir / "views", writable=writable)


def _add(tree: BranchWorktree, mark: Path, place: GitPlace) -> None:
    run_git("worktree", "prune", place=place, timeout=_TIMEOUT)  # directories that were removed by hand
    exists = run_git("show-ref", "--verify", "--quiet", f"{_HEADS}{tree.branch}", place=place).ok
    wanted = [str(tree.path), tree.branch] if exists else ["-b", tree.branch, str(tree.path), _head(tree, place)]
    with _directory(tree.path, mark):
        _check_place(tree)
        made = run_git("worktree", "add", *wanted, place=place, timeout=_TIMEOUT)
        require(made, f"creating a worktree of {tree.repository} for {tree.branch!r} at {tree.path}")
        _point_to_repository(tree)


def _point_to_repository(tree: BranchWorktree) -> None:
    """Make the worktree's ``.git`` file name the repository: git wrote the path of the view there."""
    pointer = tree.path / ".git"
    for note in (common_dir(tree.repository) / "worktrees").glob("*/gitdir"):
        if note.read_text(errors="surrogateescape").rstrip("\n") == str(pointer):
            with open_folder(tree.path) as folder, write_draft(folder.descriptor, pointer.name, replace=True) as file:
                file.write(os.fsencode(f"gitdir: {note.parent}\n"))


@contextmanager
def _directory(path: Path, mark: Path) -> Iterator[None]:
    """Create the directory and the marker file that says it is ours; after a failure the directory is as it was.

    The marker comes first, so that recovery knows what a crash left. Its content is ``made`` if the directory was
    created here; an empty directory that existed before is used, and stays afterwards.
    """
    mark.write_bytes(b"")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o755)  # also where a umask of 002 would let a group in
            mark.write_bytes(_CREATED)
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise WorktreePoolError(f"the directory {path} cannot be made: {error.strerror}") from error
    try:
        yield
    except WorktreePoolError:
        if mark.read_bytes() == _CREATED:
            with suppress(OSError):
                path.rmdir()
        elif not path.exists():  # git removes the directory when it fails, even one that existed before
            path.mkdir()
            path.chmod(mode)
        raise


def remove(tree: BranchWorktree, *, locks_dir: Path, patch_path: Path) -> Removal:
    """Save uncommitted changes to ``patch_path``, then remove the worktree; it stays if they cannot be saved."""
    with _locked(tree, locks_dir):
        mark = _marker(tree, locks_dir)
        known = next((item for item in _registered(tree, locks_dir) if item.path == tree.path), None)
        if known is None or not mark.exists():
            mark.unlink(missing_ok=True)
            return Removal(removed=True, message="there was no worktree to remove")
        if not tree.path.is_dir():
            mark.unlink()
            with _view(tree, locks_dir) as place:
                run_git("worktree", "prune", place=place)
            return Removal(removed=True, message="its directory was already gone")
        try:
            patch = _save_changes(tree, locks_dir, known, patch_path)
        except (WorktreePoolError, OSError) as error:
            return Removal(removed=False, message=f"left in place because its changes could not be saved: {error}")
        done = _remove_files(tree, locks_dir, patch, directory=mark.read_bytes() == _CREATED)
        if done.removed:
            mark.unlink()
        return done


def _remove_files(tree: BranchWorktree, locks_dir: Path, patch: Path | None, *, directory: bool) -> Removal:
    # Not by `git worktree remove`, which deletes through mounts.
    left = remove_tree(tree.path, no_links=True) if directory else empty_folder(tree.path, no_links=True)
    with _view(tree, locks_dir) as place:
        run_git("worktree", "unlock", str(tree.path), place=place)  # prune skips a locked worktree
        run_git("worktree", "prune", place=place, timeout=_TIMEOUT)
    if left:
        return Removal(removed=False, message=f"could not be removed: {_list(left)}", patch=patch)
    kept = f"; uncommitted changes are in {patch.name}" if patch is not None else ""
    message = "removed" if directory else "removed; its directory existed before and is empty again"
    return Removal(removed=True, message=f"{message}{kept}", patch=patch)


def _list(left: list[Leftover]) -> str:
    return "; ".join(map(str, left))


def _save_changes(tree: BranchWorktree, locks_dir: Path, known: _Registered, patch_path: Path) -> Path | None:
    """Save what would be lost with the directory: commits that no branch contains, and uncommitted changes."""
    if known.head is None or not known.head.strip("0"):
        return None  # a branch without a commit: there is nothing to compare with
    with _view(tree, locks_dir) as place:
        if known.branch != tree.branch and not _held_by_branch(place, known.head):
            kept = run_git("update-ref", f"{KEPT_REFS}/{known.head[:12]}", known.head, place=place)
            require(kept, f"keeping {known.head}")
    patch = diff_workspace(tree.path, known.head, objects=common_dir(tree.repository) / "objects")
    if not patch:
        return None
    patch_path.parent.mkdir(parents=True, exist_ok=True)
    draft = patch_path.with_suffix(".draft")
    draft.write_bytes(patch)
    draft.replace(patch_path)
    return patch_path


def _held_by_branch(place: GitPlace, commit: str) -> bool:
    found = run_git("branch", "--all", "--contains", commit, "--format=%(refname)", place=place, timeout=_TIMEOUT)
    return any(line.startswith("refs/") for line in found.stdout.decode(errors="replace").splitlines())


def _head(tree: BranchWorktree, place: GitPlace) -> str:
    """The commit that is checked out in the repository itself."""
    found = run_git("rev-parse", "--verify", "HEAD^{commit}", place=place)
    return require(found, f"finding the HEAD commit of {tree.repository}").decode().strip()


def _conflict(tree: BranchWorktree, registered: list[_Registered], *, ours: bool) -> str | None:
    for item in registered:
        if item.path == tree.path and ours:
            continue
        if item.branch == tree.branch and item.path != tree.path:
            return f"branch {tree.branch!r} is checked out at {item.path}"
        if item.path == tree.path:
            return f"{tree.path} is already a worktree with {item.branch or 'a commit without a branch'} checked out"
    if any(item.path == tree.path for item in registered):
        return None
    if tree.path.is_symlink() or tree.path.is_file() or (tree.path.is_dir() and any(tree.path.iterdir())):
        return f"{tree.path} already exists and is not a worktree of {tree.repository}"
    return None


def _registered(tree: BranchWorktree, locks_dir: Path) -> list[_Registered]:
    with _view(tree, locks_dir) as place:
        listed: GitResult = run_git("worktree", "list", "--porcelain", "-z", place=place, timeout=_TIMEOUT)
    shared = common_dir(tree.repository)
    main = shared.parent if shared.name == ".git" else shared
    text = require(listed, f"listing the worktrees of {tree.repository}").decode("utf-8", "surrogateescape")
    found = []
    for record in text.split("\0\0"):
        fields = dict(line.partition(" ")[::2] for line in record.split("\0") if line)
        if "worktree" in fields and "bare" not in fields:
            branch = fields.get("branch", "").removeprefix(_HEADS) or None
            path = Path(fields["worktree"])
            path = main if path == place.git_dir else path  # git reports the view as the main worktree
            found.append(_Registered(path=path, branch=branch, head=fields.get("HEAD")))
    return found


def _marker(tree: BranchWorktree, locks_dir: Path) -> Path:
    """The marker file that says that the worktree is ours."""
    where = f"{common_dir(tree.repository)}\n{tree.path}\n{tree.branch}"
    return locks_dir / f"{hashlib.sha256(where.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.tree"


@contextmanager
def _locked(tree: BranchWorktree, locks_dir: Path) -> Iterator[None]:
    """One at a time for each repository: with git's own lock files the second would fail instead of wait."""
    locks_dir.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(str(common_dir(tree.repository)).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    with file_lock(locks_dir / f"{name}.lock", timeout=_TIMEOUT):
        yield
