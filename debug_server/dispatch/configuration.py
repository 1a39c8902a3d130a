"""Both files as one checked whole, read anew when they change; an invalid pair keeps the one before."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import this_user
from debug_server.dispatch.document import read_text
from debug_server.dispatch.folder import REPOS, RUNNERS
from debug_server.dispatch.repos_file import ReposFile, parse_repos
from debug_server.dispatch.runners_file import RunnersFile, parse_runners
from debug_server.errors import ConfigurationError

_LOG = logging.getLogger(__name__)

Contents = tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What is in force."""

    runners: RunnersFile
    repos: ReposFile
    owners: frozenset[int]  # whose runner programs are trusted

    @property
    def root(self) -> Path:
        """The folder that holds ``config/``."""
        return self.repos.root


def read_configuration(folder: Path, *, owners: frozenset[int] | None = None) -> Configuration:
    """Both files of a folder, checked alone and against each other; ``owners``: whose files are trusted."""
    owners = owners or this_user()
    root = folder.absolute().parent
    repos = parse_repos(folder / REPOS, read_text(folder / REPOS, owners), root)
    text = read_text(folder / RUNNERS, owners)
    runners = parse_runners(folder / RUNNERS, text, frozenset(repos.repos), folder / REPOS)
    return Configuration(runners=runners, repos=repos, owners=owners)


class LiveConfiguration:
    """The configuration now: the files are looked at with every use, which costs some microseconds.

    Their bytes are compared, not their times: two edits within one tick of the clock have the same time. Whoever wrote
    bytes that differ must be one of the owners.
    """

    def __init__(self, folder: Path, *, owners: frozenset[int] | None = None) -> None:
        self.folder = folder
        self.owners = owners or this_user()
        self.problem: str | None = None  # why the files that lie there now are not in force
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Configuration], None]] = []
        self._seen = self._contents()
        self._current = read_configuration(folder, owners=self.owners)

    @property
    def in_force(self) -> Configuration:
        """What was last read."""
        return self._current

    def on_change(self, listener: Callable[[Configuration], None]) -> None:
        """Have ``listener`` called, in the thread that noticed, with each configuration that comes into force."""
        self._listeners.append(listener)

    def current(self) -> Configuration:
        """What is in force; reads the files if they changed."""
        if self._contents() != self._seen:
            self.reload()
        return self._current

    async def current_async(self) -> Configuration:
        """``current`` for a loop: a change is read in a thread, as listeners run git and write to the store."""
        if self._contents() != self._seen:
            return await asyncio.to_thread(self.current)
        return self._current

    def reload(self) -> bool:
        """Read the files whether they changed or not; False, and the old one stays, when they are invalid."""
        with self._lock:
            self._seen = self._contents()
            try:
                read = read_configuration(self.folder, owners=self.owners)
            except ConfigurationError as error:
                self.problem = str(error)
                _LOG.error("dispatch_configuration_refused", extra={"error": str(error)})
                return False
            self.problem = None
            self._current = read
            _LOG.info("dispatch_configuration_loaded", extra={"runners": len(read.runners.runners)})
            for listener in self._listeners:  # in the block: an older one must not be taken up after a newer one
                listener(read)
        return True

    def _contents(self) -> Contents:
        return tuple(_bytes(self.folder / name) for name in (RUNNERS, REPOS))


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
