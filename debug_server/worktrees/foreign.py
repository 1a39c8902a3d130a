"""Repositories that are not ours: whose they are, and a view of one that shows git nothing of its configuration.

A repository's configuration can name programs in many ways, and new versions of git add more. So our git never reads
it: a view is a gitdir of ours with our configuration and links to the repository's objects, refs and worktrees. Of its
own configuration we read, without running anything, how it is stored.
"""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from debug_server.disk import remove_tree
from debug_server.errors import InvalidInputError, RemoteUnreachableError
from debug_server.worktrees.git import GitPlace, require, run_git
from debug_server.worktrees.patch_text import unquote_name

_LINKED = ("objects", "refs", "packed-refs", "worktrees", "reftable")
_LINKED_IF_THERE = ("logs", "shallow")
_STORAGE = (
    *("core.repositoryformatversion", "core.bare", "core.filemode", "core.ignorecase", "core.symlinks"),
    *("core.precomposeunicode", "core.logallrefupdates", "extensions.objectformat", "extensions.refstorage"),
)
_MOST_BORROWED = 32
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_WORD = re.compile(r"[A-Za-z0-9]{1,16}")
_OURS = {"user.name": "debug-server", "user.email": "debug-server@localhost", "gc.auto": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whose repositories may be used: the server's own user's, and those that an operator lists."""

    listed: tuple[str, ...] = ()  # absolute paths, user names, user ids

    def check(self, repository: Path) -> None:
        """InvalidInputError unless each part of the repository at ``repository`` belongs to somebody who is trusted."""
        self._check_parts(repository, _parts(repository))

    def _check_parts(self, repository: Path, parts: Iterable[Path]) -> None:
        paths = [Path(os.path.realpath(item)) for item in self.listed if item.startswith("/")]
        owners = _own_users() | {uid for item in self.listed if (uid := _uid(item)) is not None}
        for part in parts:
            found = {part.lstat().st_uid, part.stat().st_uid}
            if not found <= owners and not any(Path(os.path.realpath(part)).is_relative_to(path) for path in paths):
                raise InvalidInputError(self._refusal(repository, part, min(found - owners)))

    def check_folder(self, folder: Path) -> None:
        """The same for a folder that need not be a repository."""
        if (folder / ".git").exists() or (folder / "objects").is_dir():
            self.check(folder)
        else:
            self._check_parts(folder, [folder])

    def _refusal(self, repository: Path, part: Path, uid: int) -> str:
        line = ", ".join(f'"{item}"' for item in (*self.listed, os.path.realpath(repository)))
        return (
            f"repository {repository} belongs to another user: {part} is owned by {_name(uid)} and this server runs as "
            f"{_name(os.geteuid())}. An operator who trusts it adds to [workspaces] in config/runner.toml: "
            f"trusted_repositories = [{line}]"
        )


NOBODY_ELSE = Trust()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dirs:
    git_dir: Path  # of the tree: its HEAD
    common: Path  # what all trees share


def common_dir(repository: Path) -> Path:
    """The git directory that all of a repository's trees share; InvalidInputError when it is none."""
    return _dirs(repository).common


def _dirs(repository: Path) -> _Dirs:
    try:
        found = repository / ".git"
        if found.is_file():
            found = (repository / found.read_text(errors="replace").removeprefix("gitdir:").strip()).resolve()
        elif not found.is_dir():
            found = repository
        common, pointer = found, found / "commondir"
        if pointer.is_file():
            common = (found / pointer.read_text(errors="replace").strip()).resolve()
        if not (common / "HEAD").is_file() or not (common / "objects").is_dir():
            raise InvalidInputError(f"{repository} is not the root of a git repository")
    except OSError as error:
        raise InvalidInputError(f"{repository} cannot be read: {error.strerror}") from error
    return _Dirs(git_dir=found.resolve(), common=common.resolve())


def _parts(repository: Path) -> Iterator[Path]:
    """Everything whose owner decides what git reads and runs; a bundle is one file."""
    yield repository
    if repository.is_file():
        return
    dirs = _dirs(repository)
    candidates = (repository / ".git", dirs.git_dir, dirs.common, *(dirs.common / name for name in _DECISIVE))
    yield from dict.fromkeys(path for path in candidates if path.exists())
    yield from _borrowed(dirs.common / "objects")


_DECISIVE = ("HEAD", "config", "objects", "refs", "objects/info/alternates")


def _borrowed(objects: Path) -> Iterator[Path]:
    """The object folders that a repository reads beside its own (``git clone --shared``), and who may name more."""
    waiting, seen = [objects], {os.path.realpath(objects)}
    while waiting:
        folder = waiting.pop()
        for line in _alternates(folder):
            borrowed = folder / line
            if not borrowed.is_dir() or os.path.realpath(borrowed) in seen:  # git leaves a missing one out
                continue
            seen.add(os.path.realpath(borrowed))
            if len(seen) > _MOST_BORROWED:
                raise InvalidInputError(f"{objects} borrows from more than {_MOST_BORROWED} other object folders")
            yield borrowed
            if (more := borrowed / "info" / "alternates").exists():
                yield more
            waiting.append(borrowed)


def _alternates(objects: Path) -> list[str]:
    try:
        text = (objects / "info" / "alternates").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InvalidInputError(f"{objects}/info/alternates cannot be read: {error.strerror}") from error
    return [unquote_name(line) for line in text.split(b"\n") if line and not line.startswith(b"#")]


@contextmanager
def repository_view(repository: Path, trust: Trust, *, writable: bool = False) -> Iterator[GitPlace]:
    """A place where git works on the repository without reading its configuration; see ``Trust.check``."""
    trust.check(repository)
    dirs = _dirs(repository)
    # Not by a name that is known before: it would lie in the folder of whoever made that first.
    view = Path(tempfile.mkdtemp(prefix="debug-server-view-")).resolve()
    try:
        if writable:
            (dirs.common / "worktrees").mkdir(exist_ok=True)
        for name in (*_LINKED, *(name for name in _LINKED_IF_THERE if (dirs.common / name).exists())):
            (view / name).symlink_to(dirs.common / name)
        (view / "HEAD").write_bytes((dirs.git_dir / "HEAD").read_bytes())  # git takes a link for something else
        (view / "config").write_text(_config(dirs.common / "config"))
        # Named as the common directory too: what git starts in a tree of the repository's reads this configuration.
        yield GitPlace(git_dir=view, common_dir=view)
    finally:
        remove_tree(view)


@contextmanager
def remote_view(url: str, trust: Trust) -> Iterator[str]:
    """Where git fetches from instead of ``url``: a view of a repository on this machine, any other address as it is."""
    path = local_path(url)
    if path is None:
        yield url
        return
    found = next((item for item in (path, path.with_name(f"{path.name}.git")) if item.exists()), path)
    if found.is_file():  # a bundle, which has no configuration
        trust.check(found)
        yield url
        return
    try:
        _dirs(found)
    except InvalidInputError as error:
        raise RemoteUnreachableError(f"{path} does not appear to be a git repository: {error}") from error
    with repository_view(found, trust) as view:
        yield str(view.git_dir)


def local_path(url: str) -> Path | None:
    """The path that an address names on this machine; None for another machine's."""
    if scheme := _SCHEME.match(url):
        return Path(unquote(url[scheme.end() :])) if scheme[1].lower() == "file" else None
    return None if re.match(r"[^/]+:", url) else Path(url)  # scp's user@host:path


def _config(config: Path) -> str:
    """How the repository is stored, as its own configuration says, and nothing else of that."""
    kept = dict(_OURS)
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


def _own_users() -> set[int]:
    """As git has it: ourselves and, of a root that came by sudo, who called."""
    found = {os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        found.add(int(os.environ["SUDO_UID"]))
    return found


def _uid(item: str) -> int | None:
    if item.isdigit():
        return int(item)
    try:
        return pwd.getpwnam(item).pw_uid
    except KeyError:
        return None


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"user {uid}"
