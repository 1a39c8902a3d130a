"""Applies patches to a workspace, completely or not at all, and stores each once by its hash."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import remove_tree
from debug_server.errors import NotFoundError, PatchApplicationError
from debug_server.worktrees.git import GitPlace, GitResult, OnCancel, run_git
from debug_server.worktrees.gitdir import empty_gitdir
from debug_server.worktrees.hunk_places import place_hunks
from debug_server.worktrees.locks import folder_lock
from debug_server.worktrees.patch_text import PLAIN_DIFF, FileChange, check_inside, read_patch

_FAILED_AT = re.compile(r"^error: patch failed: (?P<path>.*):(?P<line>\d+)$", re.MULTILINE)
_MISPLACED = re.compile(
    r"^error: (?:patch failed: |corrupt patch |patch fragment without header |No valid patches in input)", re.MULTILINE
)
_MEMORY_SHORT = re.compile(r"out of memory|cannot allocate memory", re.IGNORECASE)
# git apply holds every file of a patch in memory, before and after the change, and so do we before it. Without a limit
# a patch of a few MiB could take all of the machine's memory and disk: zeros are packed a thousandfold, and a line
# copies a file.
_MAX_MEMORY = 1 << 30
_LOCK_SECONDS = 10.0
_REFUSED = re.compile(r"^error: (?P<path>.*): (?P<why>[^:]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SessionPatch:
    """A unified diff as ``git diff --binary`` prints it; use bytes where text would change line endings."""

    diff: str | bytes
    description: str | None = None

    @property
    def data(self) -> bytes:
        """The exact bytes."""
        return self.diff if isinstance(self.diff, bytes) else self.diff.encode(errors="surrogateescape")

    @property
    def sha256(self) -> str:
        """The name under which it is stored."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    mode: int
    data: bytes  # content of the file, or target of the link


def apply_patch(workspace: Path, patch: SessionPatch, *, patches_dir: Path, on_cancel: OnCancel | None = None) -> Path:
    """Apply ``patch`` to the files in ``workspace``, or change nothing; returns where the patch is stored.

    A cancellation through ``on_cancel`` kills git: PatchApplicationError, and the files are as before.
    """
    changes = _checked(patch.data, workspace)
    with _stored(patch, patches_dir) as kept:
        # The workspace's own gitdir is not read: its configuration may name programs to run.
        place = GitPlace(git_dir=empty_gitdir(patches_dir), work_tree=workspace)
        applied = _apply(workspace, patch.data, changes, place, on_cancel=on_cancel)
        if _MISPLACED.search(applied.stderr) and not applied.ok:
            data = place_hunks(patch.data, lambda path: _content(workspace, path))
            changes = _checked(data, workspace)
            # Every hunk is where its lines are, so that it needs no context.
            applied = _apply(workspace, data, changes, place, "--unidiff-zero", on_cancel=on_cancel)
        if not applied.ok:
            raise _error_for(applied, changes)
    return kept


def _checked(data: bytes, workspace: Path) -> list[FileChange]:
    """What the patch changes; PatchApplicationError if that is outside the workspace, or too large."""
    changes = read_patch(data)
    paths = _paths_of(changes)
    _refuse_links(workspace, paths)
    if sum(_size(workspace, path) for path in paths) > _MAX_MEMORY:
        raise _too_large()
    return changes


def _paths_of(changes: Sequence[FileChange]) -> list[str]:
    return sorted({path for change in changes for path in change.paths})


def _apply(
    workspace: Path,
    data: bytes,
    changes: Sequence[FileChange],
    place: GitPlace,
    *options: str,
    on_cancel: OnCancel | None,
) -> GitResult:
    before = {path: _read_entry(workspace, path) for path in _paths_of(changes)}
    # git apply checks the whole patch before it writes the first file; a separate --check would cost a process more.
    arguments = ("apply", "--whitespace=nowarn", *options, "-")
    applied = run_git(*arguments, place=place, stdin=data, max_memory_bytes=_MAX_MEMORY, on_cancel=on_cancel)
    if not applied.ok:
        # git failed after its check: the disk is full, or the files changed meanwhile.
        _restore(workspace, {path: old for path, old in before.items() if _read_entry(workspace, path) != old})
    return applied


def store_patch(patch: SessionPatch, patches_dir: Path) -> Path:
    """Store the patch as ``<sha256[:12]>.patch``."""
    with _stored(patch, patches_dir) as path:
        return path


@contextmanager
def _stored(patch: SessionPatch, patches_dir: Path) -> Iterator[Path]:
    """Where the patch is stored once the block has succeeded; the space for it is taken before.

    After a failure nothing of it is left: no row names a patch that does not apply, so nobody would remove it.
    """
    path = _patch_path(patch.sha256, patches_dir)
    with folder_lock(patches_dir, timeout=_LOCK_SECONDS):  # else it could be removed, being old, after this look
        kept = _is_kept(path, patch)
        if kept:
            os.utime(path)
    if kept:
        yield path
        return
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        patches_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        # With paths.patches in a folder that others may enter, its mode keeps them from reading it.
        draft = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(draft, "wb") as file:
            file.write(patch.data)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise PatchApplicationError(f"the patch cannot be stored in {patches_dir}: {error.strerror}") from error
    try:
        yield path
        fresh.rename(path)
    finally:
        fresh.unlink(missing_ok=True)


def load_patch(sha256: str, patches_dir: Path) -> SessionPatch:
    """The stored patch of that hash; NotFoundError if it is gone or was changed."""
    path = _patch_path(sha256, patches_dir)
    try:
        patch = SessionPatch(path.read_bytes())
    except OSError as error:
        raise NotFoundError(
            f"the patch {sha256} cannot be read from {path}: {error.strerror}; open a session with it again"
        ) from error
    if patch.sha256 != sha256:
        raise NotFoundError(f"the patch at {path} was changed: it has the hash {patch.sha256}, not {sha256}")
    return patch


def _patch_path(sha256: str, patches_dir: Path) -> Path:
    return patches_dir / f"{sha256[:12]}.patch"


def _is_kept(path: Path, patch: SessionPatch) -> bool:
    try:
        return path.read_bytes() == patch.data
    except OSError:
        return False


def _refuse_links(workspace: Path, paths: Sequence[str]) -> None:
    """Refuse a path behind a symbolic link, unless the patch changes the link, too: git then checks the order."""
    named = set(paths)
    for path in paths:
        if (link := _link_above(workspace, path)) is not None and link not in named:
            raise PatchApplicationError(f"the patch names {path!r}: {link!r} is a symbolic link")


def _link_above(workspace: Path, path: str) -> str | None:
    """The outermost folder of a path that is a symbolic link."""
    parents = [str(parent) for parent in reversed(Path(path).parents[:-1])]
    return next((parent for parent in parents if (workspace / parent).is_symlink()), None)


def _size(workspace: Path, path: str) -> int:
    if _link_above(workspace, path) is not None:
        return 0
    try:
        return (workspace / path).lstat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _read_entry(workspace: Path, path: str) -> _Entry | None:
    if _link_above(workspace, path) is not None:  # there is nothing of the tree behind a link
        return None
    target = workspace / path
    try:
        mode = target.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(mode):
        return _Entry(mode=mode, data=os.fsencode(target.readlink()))
    return _Entry(mode=mode, data=target.read_bytes()) if stat.S_ISREG(mode) else None


def _content(workspace: Path, path: str) -> bytes | None:
    """The content of a regular file."""
    try:
        entry = _read_entry(workspace, check_inside(path))
    except OSError:
        return None
    return entry.data if entry is not None and stat.S_ISREG(entry.mode) else None


def _restore(workspace: Path, before: Mapping[str, _Entry | None]) -> None:
    for path in before:  # first remove what is in the way
        target = workspace / path
        if _link_above(workspace, path) is None and (target.is_symlink() or target.is_file()):
            target.unlink()
    for path, entry in before.items():
        target = workspace / path
        if entry is not None:
            remove_tree(target)  # a folder that the patch made in the place of a file
            target.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISLNK(entry.mode):
                target.symlink_to(os.fsdecode(entry.data))
            else:
                target.write_bytes(entry.data)
                target.chmod(stat.S_IMODE(entry.mode))


def _error_for(result: GitResult, changes: Sequence[FileChange]) -> PatchApplicationError:
    text = result.stderr
    if _MEMORY_SHORT.search(text):
        return _too_large()
    if failed := _FAILED_AT.search(text):
        path, line = failed["path"], int(failed["line"])
        hunk = _hunk_at(changes, path, line)
        where = f"hunk {hunk}, line {line}" if hunk else f"line {line}"
        return PatchApplicationError(f"the patch does not apply to {path} ({where}): the file differs there")
    if refused := _REFUSED.search(text):
        return PatchApplicationError(f"the patch does not apply to {refused['path']}: {refused['why'].strip()}")
    if "lacks filename information" in text:
        return PatchApplicationError(f"the patch has file names without a/ and b/: make it with `{PLAIN_DIFF}`")
    return PatchApplicationError(f"the patch cannot be read: {result.error_text}")


def _too_large() -> PatchApplicationError:
    return PatchApplicationError(
        f"the files of the patch need more than {_MAX_MEMORY >> 20} MiB of memory, before and after it: commit "
        "the large ones instead"
    )


def _hunk_at(changes: Sequence[FileChange], path: str, line: int) -> int | None:
    for change in changes:
        if path in change.paths:
            return next((hunk.number for hunk in change.hunks if hunk.old_start == line), None)
    return None
