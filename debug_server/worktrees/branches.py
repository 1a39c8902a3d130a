"""A branch of somebody's own repository in a directory of its own, for as long as a session lasts.

    add (a branch that exists is taken as it is) -> used -> remove (what was not committed is kept as a patch)

The branch is never reset, moved or deleted; commits that no branch would hold afterwards get a ref of ours.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import Leftover, empty_folder, remove_tree
from debug_server.errors import ConflictError, InvalidInputError, WorktreePoolError
from debug_server.worktrees.foreign import NOBODY_ELSE, Trust, common_dir, repository_view
from debug_server.worktrees.git import GitPlace, GitResult, require, run_git
from debug_server.worktrees.locks import file_lock
from debug_server.worktrees.snapshots import diff_workspace

KEPT_REFS = "refs/debug-server/kept"
_HEADS = "refs/heads/"
_TIMEOUT = 120.0
_MADE = b"made"  # in a tree's mark: its directory is ours, too


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchTree:
    """Which branch of which repository goes where."""

    repository: Path  # its root, a linked worktree of it, or a bare repository
    path: Path
    branch: str
    trust: Trust = NOBODY_ELSE  # whose repositories may be used


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What became of a tree at its end."""

    removed: bool
    message: str
    patch: Path | None = None  # what was not committed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Registered:
    path: Path
    branch: str | None
    head: str | None


def branch_named(text: str) -> str:
    """The branch that somebody names, also by its whole ref; InvalidInputError unless git takes it for one."""
    name = text.removeprefix(_HEADS)
    if name.startswith("refs/"):
        raise InvalidInputError(f"{text!r} is not the ref of a branch: those begin with {_HEADS}")
    if name == "HEAD" or name.startswith("-") or not run_git("check-ref-format", f"{_HEADS}{name}").ok:
        raise InvalidInputError(f"{text!r} is not a name that git takes for a branch")
    return name


def check_free(tree: BranchTree, *, locks_dir: Path) -> None:
    """ConflictError when somebody else's worktree has the branch or the path."""
    taken = _taken(tree, _registered(tree), ours=_mark(tree, locks_dir).exists())
    if taken is not None:
        raise ConflictError(taken)


def add(tree: BranchTree, *, locks_dir: Path) -> None:
    """Make the tree, or find it as an earlier attempt made it; WorktreePoolError when it cannot be had."""
    with _locked(tree, locks_dir):
        registered, mark = _registered(tree), _mark(tree, locks_dir)
        if (taken := _taken(tree, registered, ours=mark.exists())) is not None:
            raise WorktreePoolError(taken)
        if any(item.path == tree.path for item in registered) and tree.path.is_dir():
            _point(tree)
            return
        with _view(tree, writable=True) as place:
            _add(tree, mark, place)


def _view(tree: BranchTree, *, writable: bool = False) -> AbstractContextManager[GitPlace]:
    return repository_view(tree.repository, tree.trust, writable=writable)


def _add(tree: BranchTree, mark: Path, place: GitPlace) -> None:
    run_git("worktree", "prune", place=place, timeout=_TIMEOUT)  # directories that somebody removed by hand
    exists = run_git("show-ref", "--verify", "--quiet", f"{_HEADS}{tree.branch}", place=place).ok
    wanted = [str(tree.path), tree.branch] if exists else ["-b", tree.branch, str(tree.path), _head(tree, place)]
    with _directory(tree.path, mark):
        made = run_git("worktree", "add", *wanted, place=place, timeout=_TIMEOUT)
        require(made, f"a worktree of {tree.repository} for {tree.branch!r} at {tree.path}")
        _point(tree)


def _point(tree: BranchTree) -> None:
    """Have the tree's ``.git`` name the repository, where git has put the view's name."""
    pointer = tree.path / ".git"
    for note in (common_dir(tree.repository) / "worktrees").glob("*/gitdir"):
        if note.read_text(errors="surrogateescape").rstrip("\n") == str(pointer):
            draft = pointer.with_name(".git.new")
            draft.write_text(f"gitdir: {note.parent}\n", errors="surrogateescape")
            draft.replace(pointer)


@contextmanager
def _directory(path: Path, mark: Path) -> Iterator[None]:
    """The tree's directory and the mark that it is ours; after a failure as if nothing had happened.

    The mark comes first: what a crash leaves is known as ours. It says ``made`` once the directory itself is, too; an
    empty one that somebody else made is used, and stays.
    """
    mark.write_bytes(b"")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir()
            mark.write_bytes(_MADE)
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise WorktreePoolError(f"the directory {path} cannot be made: {error.strerror}") from error
    try:
        yield
    except WorktreePoolError:
        if mark.read_bytes() == _MADE:
            with suppress(OSError):
                path.rmdir()
        elif not path.exists():  # git removes what it could not fill, whoever made it
            path.mkdir()
            path.chmod(mode)
        raise


def remove(tree: BranchTree, *, locks_dir: Path, patch_path: Path) -> Removal:
    """Keep what was not committed at ``patch_path``, then remove the tree; one that cannot be kept is left alone."""
    with _locked(tree, locks_dir):
        mark = _mark(tree, locks_dir)
        known = next((item for item in _registered(tree) if item.path == tree.path), None)
        if known is None or not mark.exists():
            mark.unlink(missing_ok=True)
            return Removal(removed=True, message="there was no worktree of ours to remove")
        if not tree.path.is_dir():
            mark.unlink()
            with _view(tree) as place:
                run_git("worktree", "prune", place=place)
            return Removal(removed=True, message="its directory was gone already")
        try:
            patch = _keep(tree, known, patch_path)
        except (WorktreePoolError, OSError) as error:
            return Removal(removed=False, message=f"left in place, its changes could not be kept: {error}")
        done = _removed(tree, patch, directory=mark.read_bytes() == _MADE)
        if done.removed:
            mark.unlink()
        return done


def _removed(tree: BranchTree, patch: Path | None, *, directory: bool) -> Removal:
    # Not by `git worktree remove`, which deletes through mounts.
    left = remove_tree(tree.path, real=True) if directory else empty_folder(tree.path, real=True)
    with _view(tree) as place:
        run_git("worktree", "unlock", str(tree.path), place=place)  # a lock would keep its record from the pruning
        run_git("worktree", "prune", place=place, timeout=_TIMEOUT)
    if left:
        return Removal(removed=False, message=f"could not be removed: {_told(left)}", patch=patch)
    kept = f"; what was not committed is kept in {patch.name}" if patch is not None else ""
    told = "removed" if directory else "removed; its directory was there before and is empty again"
    return Removal(removed=True, message=f"{told}{kept}", patch=patch)


def _told(left: list[Leftover]) -> str:
    return "; ".join(map(str, left))


def _keep(tree: BranchTree, known: _Registered, patch_path: Path) -> Path | None:
    """Whatever the removal of the directory would take along."""
    if known.head is None or not known.head.strip("0"):
        return None  # a branch without a commit has nothing to compare with
    with _view(tree) as place:
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


def _head(tree: BranchTree, place: GitPlace) -> str:
    """The commit that the repository's own tree is at."""
    found = run_git("rev-parse", "--verify", "HEAD^{commit}", place=place)
    return require(found, f"the commit that {tree.repository} is at").decode().strip()


def _taken(tree: BranchTree, registered: list[_Registered], *, ours: bool) -> str | None:
    for item in registered:
        if item.path == tree.path and ours:
            continue
        if item.branch == tree.branch and item.path != tree.path:
            return f"branch {tree.branch!r} is checked out at {item.path}"
        if item.path == tree.path:
            return f"{tree.path} is somebody's worktree of {item.branch or 'a commit without a branch'}"
    if any(item.path == tree.path for item in registered):
        return None
    if tree.path.is_symlink() or tree.path.is_file() or (tree.path.is_dir() and any(tree.path.iterdir())):
        return f"{tree.path} exists already and is no worktree of {tree.repository}"
    return None


def _registered(tree: BranchTree) -> list[_Registered]:
    with _view(tree) as place:
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
            path = main if path == place.git_dir else path  # git takes the view for the repository's own tree
            found.append(_Registered(path=path, branch=branch, head=fields.get("HEAD")))
    return found


def _mark(tree: BranchTree, locks_dir: Path) -> Path:
    """The file that says that the tree is ours."""
    where = f"{common_dir(tree.repository)}\n{tree.path}\n{tree.branch}"
    return locks_dir / f"{hashlib.sha256(where.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.tree"


@contextmanager
def _locked(tree: BranchTree, locks_dir: Path) -> Iterator[None]:
    """One at a time in each repository: git's own lock files make the second fail instead of wait."""
    locks_dir.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(str(common_dir(tree.repository)).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    with file_lock(locks_dir / f"{name}.lock", timeout=_TIMEOUT):
        yield
