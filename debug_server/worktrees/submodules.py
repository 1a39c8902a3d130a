"""Submodules of a commit: finds their paths and addresses, and checks them out in a workspace.

Each submodule has its own mirror beside the mirror of the repository. Its address comes from the commit. A local path
is allowed only if the repository itself is local; else a hostile repository could read others on this machine.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from debug_server.errors import InvalidInputError, WorktreePoolError
from debug_server.worktrees.git import GitPlace, require, run_git, scan_git
from debug_server.worktrees.gitdir import write_gitdir
from debug_server.worktrees.mirror import Mirror, is_local

_GITLINK = b"160000"
_MAX_DEPTH = 8
_KEY = re.compile(r"submodule\.(.*)\.(path|url)", re.DOTALL)
_TIMEOUT = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gitlink:
    """The commit of a submodule, and where its objects are."""

    commit: str
    objects: Path


def gitlinks_of(place: GitPlace) -> dict[str, str]:
    """The gitlinks (submodule entries) in the index of ``place``: path -> commit."""
    listed = require(run_git("ls-files", "--stage", "-z", place=place), "the index cannot be listed")
    found = {}
    for entry in listed.split(b"\0"):
        if entry.startswith(_GITLINK):
            facts, _, name = entry.partition(b"\t")
            found[name.decode(errors="surrogateescape")] = facts.split()[1].decode()
    return found


class Submodules:
    """The submodules of one repository's commits; ``open_mirror`` opens the mirror of an address."""

    def __init__(self, mirror: Mirror, open_mirror: Callable[[Path, str], Mirror]) -> None:
        self._mirror = mirror
        self._open_mirror = open_mirror

    def of(self, commit: str) -> dict[str, Gitlink]:
        """Every submodule of a commit by path, nested ones too; missing commits are fetched."""
        return dict(self._walk(self._mirror, commit, "", 0))

    def same(self, one: str, other: str) -> bool:
        """Whether two commits have the same submodules at the same commits."""
        return self._links(self._mirror, one) == self._links(self._mirror, other)

    def check_out(self, root: Path, commit: str) -> None:
        """Check out every submodule of ``commit`` in the workspace at ``root``, each with a gitdir of its own."""
        for name, link in sorted(self.of(commit).items()):
            path = root / name
            if any(parent.is_symlink() for parent in (path, *path.parents) if parent.is_relative_to(root)):
                raise WorktreePoolError(f"the submodule {name!r} is behind a symbolic link")
            path.mkdir(parents=True, exist_ok=True)
            write_gitdir(path / ".git", objects=[link.objects], head=link.commit)
            place = GitPlace(git_dir=path / ".git", work_tree=path)
            result = run_git("read-tree", "--reset", "-u", link.commit, place=place, timeout=_TIMEOUT)
            require(result, f"checking out the submodule {name!r}")

    def _walk(self, mirror: Mirror, commit: str, prefix: str, depth: int) -> Iterator[tuple[str, Gitlink]]:
        if depth > _MAX_DEPTH:
            raise WorktreePoolError(f"submodules are nested deeper than {_MAX_DEPTH} levels at {prefix!r}")
        links = self._links(mirror, commit)
        addresses = self._addresses(mirror, commit) if links else {}
        for path, sha in links.items():
            name = prefix + path
            if path not in addresses:
                raise WorktreePoolError(f"the submodule {name!r} of {commit} has no address in .gitmodules")
            inner = self._inner_mirror(mirror, addresses[path], name)
            inner.resolve(sha)
            yield name, Gitlink(commit=sha, objects=inner.objects)
            yield from self._walk(inner, sha, f"{name}/", depth + 1)

    def _links(self, mirror: Mirror, commit: str) -> dict[str, str]:
        found: dict[str, str] = {}

        def note(entry: bytes) -> bool:
            if entry.startswith(_GITLINK):
                facts, _, name = entry.partition(b"\t")
                found[name.decode(errors="surrogateescape")] = facts.split()[2].decode()
            return True

        arguments = ("ls-tree", "-r", "-z", "--full-tree", commit)
        listed = scan_git(*arguments, place=mirror.place, more=note, separator=b"\0")
        require(listed, f"the files of {commit} cannot be listed")
        return found

    def _addresses(self, mirror: Mirror, commit: str) -> Mapping[str, str]:
        listed = run_git("config", "--null", "--blob", f"{commit}:.gitmodules", "--list", place=mirror.place)
        if not listed.ok:
            return {}
        facts: dict[str, dict[str, str]] = {}
        for item in listed.stdout.decode(errors="surrogateescape").split("\0"):
            key, _, value = item.partition("\n")
            if match := _KEY.fullmatch(key):
                facts.setdefault(match[1], {})[match[2]] = value
        return {item["path"]: item["url"] for item in facts.values() if {"path", "url"} <= item.keys()}

    def _inner_mirror(self, outer: Mirror, address: str, name: str) -> Mirror:
        url = resolve_address(outer.remote_url, address)
        if is_local(url) and not is_local(self._mirror.remote_url):
            raise InvalidInputError(f"the submodule {name!r} names {address!r} on this machine: that is not allowed")
        digest = hashlib.sha256(url.encode(errors="surrogateescape")).hexdigest()[:20]
        folder = self._mirror.bare_path.with_name(f"{self._mirror.bare_path.name}.submodules")
        return self._open_mirror(folder / f"{digest}.bare", url)


def resolve_address(outer: str, address: str) -> str:
    """The address of a submodule; ``./`` and ``../`` are relative to the address of its repository."""
    if not address.startswith(("./", "../")):
        return address
    if is_local(outer):
        return posixpath.normpath(posixpath.join(outer.removeprefix("file://"), address))
    head, separator, path = outer.partition("://")
    if not separator:  # scp's host:path
        head, separator, path = outer.partition(":")
        return f"{head}{separator}{posixpath.normpath(posixpath.join(path, address))}"
    host, _, rest = path.partition("/")
    return f"{head}://{host}/{PurePosixPath(posixpath.normpath(posixpath.join('/', rest, address))).relative_to('/')}"
