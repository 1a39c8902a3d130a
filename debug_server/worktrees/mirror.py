"""The bare mirror of a repository: fetched when a commit is missing, cloned again when it is broken."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

from debug_server.disk import make_private, remove_tree
from debug_server.errors import InvalidInputError, RemoteUnreachableError, UnknownCommitError, WorktreePoolError
from debug_server.model import without_credentials
from debug_server.worktrees.git import ALLOWED_PROTOCOLS, GitPlace, GitResult, error_for, require, run_git, scan_git
from debug_server.worktrees.locks import file_lock
from debug_server.worktrees.repository_trust import OWN_USER_ONLY, Trust
from debug_server.worktrees.repository_view import remote_view

_FULL = re.compile(r"[0-9a-f]{40}")
_HEX = re.compile(r"[0-9a-fA-F]{4,40}")
_NAME = re.compile(r"[^\s\x00-\x20\x7f~^:?*\[\\-][^\s\x00-\x20\x7f~^:?*\[\\]{0,254}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(::|://)")
# A password, or for https any user name, which is often a token. ssh needs a user name.
_CREDENTIALS = re.compile(r"https?://[^/]*@|[a-z+]+://[^/@]*:[^/@]*@", re.IGNORECASE)
_STEPS = re.compile(r"(?:\^(?:\d{0,2}|\{(?:commit)?\})|~\d{0,6})+")
_MIRRORED = ("refs/heads/", "refs/tags/")
_MAX_ANCESTORS = 200  # the search for a nearby tree ends there
_MAX_HISTORIES = 64
_CHECKOUT_TIMEOUT = 900.0
_CONFIG = """\
[core]
	repositoryformatversion = 0
	filemode = true
	bare = true
[remote "origin"]
	url = "{url}"
	fetch = +refs/heads/*:refs/heads/*
	fetch = +refs/tags/*:refs/tags/*
"""


class Mirror:
    """A bare copy at ``bare_path`` of the repository at ``remote_url``."""

    def __init__(
        self,
        bare_path: Path,
        remote_url: str,
        *,
        fetch_timeout: float = 600.0,
        max_fetch_bytes: int | None = None,
        refresh_age: float = 0.0,
        trust: Trust = OWN_USER_ONLY,
    ) -> None:
        self._trust = trust
        self.bare_path = bare_path.absolute()
        self.remote_url = check_remote_url(remote_url)
        self.place = GitPlace(git_dir=self.bare_path)
        self._fetch_timeout = fetch_timeout
        self._max_fetch_bytes = max_fetch_bytes
        self._refresh_age = refresh_age
        self._stamp = self._sibling("fetched")
        self._histories: dict[str, list[str]] = {}
        self._packed: tuple[float, bytes] | None = None  # time of the last fetch, and the refs since then

    @property
    def _shallow(self) -> Path:
        """git's list of the commits whose parents were not fetched; only the mirror of a shallow clone has it."""
        return self.bare_path / "shallow"

    @property
    def objects(self) -> Path:
        """The object store that workspaces borrow from."""
        return self.bare_path / "objects"

    def ensure(self) -> Path:
        """The path of the mirror, which is cloned if it is missing or not a repository."""
        if not self._exists():
            with self._lock():
                if not self._exists():
                    self._build()
        self._update_url()
        return self.bare_path

    def resolve(self, ref: str) -> str:
        """The full commit that a branch, tag, short or full sha or other ref names; fetched from the remote if needed.

        Behind the name there may be steps to ancestors: ``HEAD^``, ``main~2``, ``v1^{commit}``.
        """
        self.ensure()
        name, steps = _split_steps(ref)
        looks_like_sha = _HEX.fullmatch(name) and not self._names_ref(name)
        found = self._resolve_hex(name) if looks_like_sha else self._resolve_name(name, shown=ref)
        if found is None:
            shown = without_credentials(self.remote_url)
            raise UnknownCommitError(f"{shown} has no commit, branch or tag {name!r}: check it, or push it first")
        if steps and (ancestor := self._commit(f"{found}{steps}")) is None:
            raise UnknownCommitError(f"{ref!r} names no commit: {name!r} is {found}, which has no ancestor {steps!r}")
        return ancestor if steps and ancestor else found

    def ancestors(self, commit: str) -> list[str]:
        """The commit and up to 200 ancestors, nearest first; empty if the mirror has no such commit."""
        if commit not in self._histories:
            listed = self._read(
                "rev-list", f"--max-count={_MAX_ANCESTORS}", "--ignore-missing", "--end-of-options", commit
            )
            found = require(listed, f"the history of {commit} cannot be read").decode().split()
            if not found:
                return []
            self._histories[commit] = found
            while len(self._histories) > _MAX_HISTORIES:
                self._histories.pop(next(iter(self._histories)), None)
        return self._histories[commit]

    def write_refs(self, git_dir: Path) -> None:
        """Write tags, branches (as those of ``origin``) and shallow commits to the gitdir of a workspace."""
        fetched = self._last_fetch()
        if self._packed is None or self._packed[0] != fetched:
            self._packed = (fetched, self._list_refs())
        (git_dir / "packed-refs").write_bytes(self._packed[1])
        if self._shallow.exists():
            shutil.copyfile(self._shallow, git_dir / "shallow")
        else:
            (git_dir / "shallow").unlink(missing_ok=True)

    def check_size(self, commit: str, most: int) -> None:
        """WorktreePoolError if all files of the commit together exceed ``most`` bytes."""
        total = self._tree_bytes(commit, most)
        if total > most:
            raise WorktreePoolError(
                f"the files of {commit} have at least {total} bytes, more than max_tree_bytes ({most}): raise it, or "
                "choose another commit"
            )

    def _tree_bytes(self, commit: str, most: int) -> int:
        """The size of all files, counted until it exceeds ``most``: a few folders can name billions of files."""
        total = 0

        def add(line: bytes) -> bool:
            nonlocal total
            size = line.split(None, 4)[3]
            total += int(size) if size != b"-" else 0
            return total <= most

        arguments = ("ls-tree", "-r", "-l", "--full-tree", commit)
        listed = scan_git(*arguments, place=self.place, more=add)
        if total <= most and listed.corrupt:
            self.rebuild()
            total = 0
            listed = scan_git(*arguments, place=self.place, more=add)
        if total <= most:
            require(listed, f"the files of {commit} cannot be listed")
        return total

    def check_out(self, commit: str, place: GitPlace) -> None:
        """Write the commit's files to ``place``; a broken mirror is rebuilt once."""
        arguments = ("-c", "checkout.workers=0", "read-tree", "--reset", "-u", commit)
        result = run_git(*arguments, place=place, timeout=_CHECKOUT_TIMEOUT)
        if result.corrupt:
            self.rebuild()
            result = run_git(*arguments, place=place, timeout=_CHECKOUT_TIMEOUT)
        require(result, f"checking out {commit}")

    def rebuild(self) -> None:
        """Replace a broken mirror by a new clone; the old one stays if the remote cannot be reached."""
        with self._lock():
            self._build()

    def fetch(self) -> None:
        """Update branches and tags; those that the remote no longer has are removed."""
        started = time.time()
        with self._lock():
            if self._fetched_since(started):  # another process fetched while we waited
                return
            self._fetch_locked()

    def refresh(self, *, older_than: float) -> bool:
        """Fetch if the last fetch is ``older_than`` seconds ago; returns whether. A missing mirror is not cloned."""
        if not self._exists() or self._fetched_since(time.time() - older_than):
            return False
        self.fetch()
        return True

    def repack(self, *, older_than: float) -> bool:
        """Join packs if that was last done ``older_than`` seconds ago; returns whether.

        No object is removed: workspaces may borrow commits that no branch contains any more.
        """
        mark = self._sibling("repacked")
        try:
            due = mark.stat().st_mtime < time.time() - older_than
        except FileNotFoundError:
            due = self._last_fetch() < time.time() - older_than
        if not due or not self._exists():
            return False
        with self._lock():
            self._remove_leftovers()
            for arguments in (("repack", "-d", "-q", "--geometric=2"), ("pack-refs", "--all")):
                done = run_git(*arguments, place=self.place, timeout=self._fetch_timeout)
                require(done, f"the mirror {self.bare_path} cannot be repacked")
            mark.touch()
        return True

    def _list_refs(self) -> bytes:
        listed = run_git("for-each-ref", "--format=%(objectname) %(refname)", place=self.place)
        lines = require(listed, "the mirror's refs cannot be listed").splitlines()
        renamed = [line.replace(b" refs/heads/", b" refs/remotes/origin/", 1) for line in lines]
        renamed.sort(key=lambda line: line.split(b" ", 1)[1])
        return b"\n".join([b"# pack-refs with: sorted ", *renamed, b""])

    def _names_ref(self, ref: str) -> bool:
        """Whether a branch or tag has this name: one called `feed` or `2024` comes before an abbreviated commit."""
        if _FULL.fullmatch(ref):
            return False
        listed = run_git("for-each-ref", "--count=1", f"refs/heads/{ref}", f"refs/tags/{ref}", place=self.place)
        return listed.ok and bool(listed.stdout)

    def _resolve_hex(self, ref: str) -> str | None:
        if found := self._commit(ref.lower()):
            return found
        self.fetch()
        found = self._commit(ref.lower())
        if found is None and _FULL.fullmatch(ref.lower()):
            with self._lock():  # not on a branch or tag: a server may still send it by its hash
                self._fetch_from("origin", ref.lower())
            found = self._commit(ref.lower())
        return found

    def _resolve_name(self, ref: str, *, shown: str) -> str | None:
        if not _NAME.fullmatch(ref) or ".." in ref:
            raise UnknownCommitError(f"{shown!r} is not the name of a commit, branch or tag")
        if not self._fetched_since(time.time() - self._refresh_age):
            self.fetch()
        if ref in ("HEAD", "@"):
            target = self._remote_head()
            return self._resolve_hex(target) if _FULL.fullmatch(target) else self._commit(target)
        if ref.startswith("refs/"):
            return self._commit(ref) if ref.startswith(_MIRRORED) else self._resolve_other(ref)
        branch = f"refs/heads/{ref.removeprefix('origin/')}"
        found = self._unambiguous(ref, self._named(ref)) or self._commit(branch)
        return found or (self._resolve_other(f"refs/{ref}") if "/" in ref else None)

    def _resolve_other(self, ref: str) -> str | None:
        """A ref that is no branch or tag, such as a pull request's: fetched by its name each time, because it moves."""
        with self._lock():
            result = self._fetch_from("origin", f"+{ref}:{ref}")
        if result.ok:
            return self._commit(ref)
        error = error_for(result, f"fetching {ref} of {without_credentials(self.remote_url)}")
        if isinstance(error, UnknownCommitError):
            return None
        raise error

    def _named(self, ref: str) -> dict[str, str]:
        """Every branch and tag that ``ref`` can mean, with its commit."""
        names = [f"refs/heads/{ref}", f"refs/tags/{ref}"]
        if ref.startswith(("heads/", "tags/")):
            names.append(f"refs/{ref}")
        listed = self._read("for-each-ref", "--format=%(refname)", *names).stdout.decode(errors="replace").splitlines()
        return {name: commit for name in names if name in listed and (commit := self._commit(name))}

    def _unambiguous(self, ref: str, found: dict[str, str]) -> str | None:
        commits = set(found.values())
        if len(commits) > 1:
            both = " and ".join(f"{name} ({commit})" for name, commit in found.items())
            raise UnknownCommitError(f"{ref!r} is ambiguous: there are {both}; use one of these full names")
        return next(iter(commits), None)

    def _remote_head(self) -> str:
        """The branch that the remote's HEAD names, or the commit of a detached HEAD."""
        result = self._ask("ls-remote", "--symref", "origin", "HEAD", place=self.place)
        text = require(result, "the remote's default branch cannot be read").decode(errors="replace")
        match = re.search(r"^(?:ref: (\S+)|([0-9a-f]{40}))\tHEAD$", text, re.MULTILINE)
        return (match[1] or match[2]) if match else "refs/heads/none"

    def _commit(self, name: str) -> str | None:
        if _FULL.fullmatch(name):
            return next(iter(self.ancestors(name)), None)
        result = self._read("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        if "ambiguous" in result.stderr:
            raise UnknownCommitError(f"{name!r} is ambiguous: several commits begin with it; give more digits")
        return result.stdout.decode().strip() if result.ok else None

    def _read(self, *arguments: str) -> GitResult:
        """Run git on the mirror; a broken one is rebuilt once."""
        result = run_git(*arguments, place=self.place)
        if result.corrupt:
            self.rebuild()
            result = run_git(*arguments, place=self.place)
        return result

    def _fetch_locked(self) -> None:
        self._remove_leftovers()
        started = time.time()
        result = self._fetch_from("origin")
        ours = str(self.bare_path) in result.stderr  # "not a git repository" can be about either side
        if result.corrupt and (ours or not isinstance(error_for(result, ""), RemoteUnreachableError)):
            self._build()
            return
        require(result, f"fetching {without_credentials(self.remote_url)}")
        self._stamp.write_text(repr(started))

    def _fetch_from(self, *what: str, place: GitPlace | None = None) -> GitResult:
        """Fetch, even if the remote is a shallow clone; commits that the clone has received since are fetched too."""
        if place is None and self._shallow.exists():
            result = self._run_fetch("--unshallow", *what, place=self.place)
            if result.ok or result.stderr.strip():  # without output: the remote has no branch and no tag
                return result
        return self._run_fetch("--update-shallow", *what, place=place or self.place)

    def _run_fetch(self, *what: str, place: GitPlace) -> GitResult:
        options = ("--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        return self._ask("fetch", *options, *what, place=place)

    def _ask(self, *arguments: str, place: GitPlace) -> GitResult:
        """Run git against the remote; a repository on this machine is accessed through a view."""
        with remote_view(self.remote_url, self._trust, folder=self.bare_path.parent / ".views") as address:
            result = run_git(
                *arguments,
                place=place,
                instead_of=None if address == self.remote_url else (address, self.remote_url),
                timeout=self._fetch_timeout,
                max_file_bytes=self._max_fetch_bytes,
            )
        return replace(result, stderr=result.stderr.replace(address, self.remote_url))

    def _build(self) -> None:
        """Clone beside the final path and rename, so that the mirror is complete or absent."""
        self._remove_unfinished()
        fresh = self._sibling(f"new-{secrets.token_hex(4)}")
        try:
            started = time.time()
            made = run_git("init", "--quiet", "--bare", "--template=", str(fresh))
            require(made, f"the mirror {self.bare_path} cannot be created")
            self._write_config(fresh)
            result = self._fetch_from("origin", place=GitPlace(git_dir=fresh))
            require(result, f"fetching {without_credentials(self.remote_url)}")
            old = self._sibling(f"old-{secrets.token_hex(4)}")
            with suppress(FileNotFoundError):
                self.bare_path.rename(old)
            fresh.rename(self.bare_path)
            self._stamp.write_text(repr(started))
            remove_tree(old)
            self._histories.clear()
        finally:
            remove_tree(fresh)

    def _remove_leftovers(self) -> None:
        """Remove what a killed git left; only the holder of the mirror's write lock calls this."""
        patterns = (("", "*.lock"), ("", "config.new-*"), ("refs", "**/*.lock"), ("objects/pack", "*tmp_*"))
        for folder, pattern in patterns:
            for path in (self.bare_path / folder).glob(pattern):
                path.unlink(missing_ok=True)
        self._remove_unfinished()

    def _remove_unfinished(self) -> None:
        for leftover in self.bare_path.parent.glob(f".{self.bare_path.name}.[no]*-*"):
            remove_tree(leftover)

    def _exists(self) -> bool:
        try:
            head = (self.bare_path / "HEAD").read_text()
        except (OSError, UnicodeDecodeError):
            return False
        return bool(head.strip()) and self.objects.is_dir() and (self.bare_path / "refs").is_dir()

    def _update_url(self) -> None:
        config = self.bare_path / "config"
        if not config.is_file() or config.read_text(errors="replace") != self._config_text():
            with self._lock():
                self._write_config(self.bare_path)

    def _write_config(self, git_dir: Path) -> None:
        fresh = git_dir / f"config.new-{secrets.token_hex(4)}"
        fresh.write_text(self._config_text())
        fresh.rename(git_dir / "config")

    def _config_text(self) -> str:
        return _CONFIG.format(url=self.remote_url.replace("\\", "\\\\").replace('"', '\\"'))

    def _fetched_since(self, moment: float) -> bool:
        return self._last_fetch() >= moment

    def _last_fetch(self) -> float:
        try:
            return float(self._stamp.read_text())
        except (OSError, ValueError):
            return 0.0

    def _sibling(self, suffix: str) -> Path:
        return self.bare_path.parent / f".{self.bare_path.name}.{suffix}"

    def _lock(self) -> AbstractContextManager[None]:
        make_private(self.bare_path.parent)
        return file_lock(self._sibling("lock"), timeout=self._fetch_timeout + 60)


def _split_steps(ref: str) -> tuple[str, str]:
    """A name and the steps to an ancestor behind it: ``main~1`` is ``main`` and ``~1``."""
    begin = next((place for place, letter in enumerate(ref) if letter in "^~"), len(ref))
    name, steps = ref[:begin], ref[begin:]
    return (name, steps) if name and _STEPS.fullmatch(steps) else (ref, "")


def default_branch(url: str, *, folder: Path, timeout: float, trust: Trust = OWN_USER_ONLY) -> str | None:
    """The branch that the remote's HEAD names; None if it has no branch. WorktreePoolError if it does not answer.

    A repository on this machine is asked through a view in ``folder``.
    """
    with remote_view(url, trust, folder=folder) as address:
        result = run_git("ls-remote", "--symref", "--", address, "HEAD", timeout=timeout)
    result = replace(result, stderr=result.stderr.replace(address, url))
    listed = require(result, f"the remote {without_credentials(url)} does not answer")
    match = re.search(r"^ref: refs/heads/(\S+)\tHEAD$", listed.decode(errors="replace"), re.MULTILINE)
    return match[1] if match else None


def check_remote_url(url: str) -> str:
    """Return ``url`` if git may use it; a relative local path becomes absolute."""
    shown = without_credentials(url)
    if not url or url.startswith("-") or any(ord(character) < 32 for character in url):
        raise InvalidInputError(f"remote_url {shown!r} is not an address: give a git URL or a path")
    scheme = _SCHEME.match(url)
    if scheme and (scheme[2] == "::" or scheme[1].lower() not in ALLOWED_PROTOCOLS):
        raise InvalidInputError(f"remote_url {shown!r} uses {scheme[1]!r}: use one of {', '.join(ALLOWED_PROTOCOLS)}")
    if _CREDENTIALS.match(url):
        raise InvalidInputError(
            f"remote_url {shown!r} contains credentials, which would be stored: remove them and put them "
            "into ~/.netrc of the server's user (machine HOST login USER password SECRET), or use ssh with a key"
        )
    if scheme or not is_local(url):
        return url
    return str(Path(os.path.expanduser(url)).absolute())  # noqa: PTH111 - pathlib's takes ./~ for the home too


def is_local(url: str) -> bool:
    """Whether an address is a path on this machine."""
    if scheme := _SCHEME.match(url):
        return scheme[1].lower() == "file"
    return not re.match(r"[^/]+:", url)  # scp's user@host:path
