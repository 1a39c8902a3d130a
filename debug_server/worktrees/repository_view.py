"""A view of a user's repository: git works on it without reading its configuration.

The configuration of a repository can name programs in many ways, and new versions of git add more. A view is a
temporary gitdir with our configuration and links to the objects, refs and worktrees of the repository. Of the
repository's own configuration only the storage format is copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from debug_server.disk import make_private
from debug_server.errors import InvalidInputError, RemoteUnreachableError
from debug_server.worktrees.git import GitPlace, require, run_git
from debug_server.worktrees.git_dirs import find_git_dirs
from debug_server.worktrees.locks import remove_abandoned, scratch_folder
from debug_server.worktrees.repository_trust import Trust

_LINKED = ("objects", "refs", "packed-refs", "worktrees", "reftable")
_LINKED_IF_THERE = ("logs", "shallow")
_STORAGE = (
    *("core.repositoryformatversion", "core.bare", "core.filemode", "core.ignorecase", "core.symlinks"),
    *("core.precomposeunicode", "core.logallrefupdates", "extensions.objectformat", "extensions.refstorage"),
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_WORD = re.compile(r"[A-Za-z0-9]{1,16}")
_OUR_SETTINGS = {"user.name": "debug-server", "user.email": "debug-server@localhost", "gc.auto": "0"}


@contextmanager
def repository_view(repository: Path, trust: Trust, *, folder: Path, writable: bool = False) -> Iterator[GitPlace]:
    """A place in ``folder`` where git works on the repository without reading its configuration; see ``Trust.check``.

    Views of killed processes in the folder are removed.
    """
    trust.check(repository)
    dirs = find_git_dirs(repository)
    make_private(folder)
    remove_abandoned(folder)
    with scratch_folder(folder.resolve()) as view:
        if writable:
            (dirs.common / "worktrees").mkdir(exist_ok=True)
        for name in (*_LINKED, *(name for name in _LINKED_IF_THERE if (dirs.common / name).exists())):
            (view / name).symlink_to(dirs.common / name)
        (view / "HEAD").write_bytes((dirs.git_dir / "HEAD").read_bytes())  # git reads a symbolic link as a symbolic ref
        (view / "config").write_text(_config(dirs.common / "config"))
        # Also as common directory: processes that git starts in a worktree then read this configuration.
        yield GitPlace(git_dir=view, common_dir=view)


@contextmanager
def remote_view(url: str, trust: Trust, *, folder: Path) -> Iterator[str]:
    """The address to fetch from: a view of a repository on this machine, any other address unchanged."""
    path = local_path(url)
    if path is None:
        yield url
        return
    found = _found(path)
    if found.is_file():  # a bundle, which has no configuration
        trust.check(found)
        yield url
        return
    try:
        _check_exists(found)
        find_git_dirs(found)
    except InvalidInputError as error:
        raise RemoteUnreachableError(str(error)) from error
    with repository_view(found, trust, folder=folder) as view:
        yield str(view.git_dir)


def check_remote_is_there(url: str, trust: Trust) -> None:
    """InvalidInputError when the address is a path on this machine without a bundle or a repository that is trusted."""
    path = local_path(url)
    if path is None or (found := _found(path)).is_file():
        return
    _check_exists(found)
    trust.check(found)


def is_repository(url: str) -> bool:
    """False when the address is a path on this machine without a bundle or a repository."""
    path = local_path(url)
    if path is None or (found := _found(path)).is_file():
        return True
    try:
        _check_exists(found)
        find_git_dirs(found)
    except InvalidInputError:
        return False
    return True


def _found(path: Path) -> Path:
    """The path, or with ``.git`` behind it, as git takes it."""
    return next((item for item in (path, path.with_name(f"{path.name}.git")) if item.exists()), path)


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise InvalidInputError(f"{path} does not exist")


def local_path(url: str) -> Path | None:
    """The path of an address on this machine; None for an address of another machine."""
    if scheme := _SCHEME.match(url):
        return Path(unquote(url[scheme.end() :])) if scheme[1].lower() == "file" else None
    return None if re.match(r"[^/]+:", url) else Path(url)  # scp's user@host:path


def _config(config: Path) -> str:
    """Our configuration, plus the storage format from the repository's own."""
    kept = dict(_OUR_SETTINGS)
    if config.is_file():
        listed = run_git("config", "--file", str(config), "--no-includes", "--list", "-z")
        for item in require(listed, f"reading {config}").decode(errors="replace").split("\0"):
            key, _, value = item.partition("\n")
            if key in _STORAGE and _WORD.fullmatch(value):
                kept[key] = value
    lines = []
    for key, value in kept.items():
        section, _, name = key.partition(".")
        lines.append(f"[{section}]\n\t{name} = {value}\n")
    return "".join(lines)
