"""``runners.yml`` and ``repos.yml`` read together and reread when they change; invalid files are not used."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import trusted_users
from debug_server.dispatch.folder import REPOS, RUNNERS
from debug_server.dispatch.repos_file import ReposFile, parse_repos
from debug_server.dispatch.runners_file import RunnersFile, parse_runners
from debug_server.dispatch.yaml_file import read_text
from debug_server.errors import ConfigurationError

_LOG = logging.getLogger(__name__)

Contents = tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Both files, checked against each other."""

    runners: RunnersFile
    repos: ReposFile
    trusted_uids: frozenset[int]  # user ids whose runner programs are trusted

    @property
    def root(self) -> Path:
        """The folder that holds ``config/``."""
        return self.repos.root


def read_configuration(folder: Path, *, trusted_uids: frozenset[int] | None = None) -> Configuration:
    """Read both files of a folder; ``trusted_uids`` are the user ids whose files are trusted."""
    trusted_uids = trusted_uids or trusted_users()
    root = folder.absolute().parent
    repos = parse_repos(folder / REPOS, read_text(folder / REPOS, trusted_uids), root)
    text = read_text(folder / RUNNERS, trusted_uids)
    runners = parse_runners(folder / RUNNERS, text, frozenset(repos.repos), folder / REPOS)
    return Configuration(runners=runners, repos=repos, trusted_uids=trusted_uids)


class LiveConfiguration:
    """The current configuration; each use checks the files for changes, which takes some microseconds.

    It compares their bytes, not their times: two edits within one tick of the clock have the same time.
    """

    def __init__(self, folder: Path, *, trusted_uids: frozenset[int] | None = None) -> None:
        self.folder = folder
        self.trusted_uids = trusted_uids or trusted_users()
        self.problem: str | None = None  # why the files on disk are not used
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Configuration], None]] = []
        self._read = self._contents()
        self._current = read_configuration(folder, trusted_uids=self.trusted_uids)

    @property
    def in_use(self) -> Configuration:
        """The last valid configuration; does not check the files."""
        return self._current

    def on_change(self, listener: Callable[[Configuration], None]) -> None:
        """Call ``listener`` with each new configuration, in the thread that read it."""
        self._listeners.append(listener)

    def current(self) -> Configuration:
        """The configuration in use, after reading the files if they changed."""
        if self._contents() != self._read:
            self.reload()
        return self._current

    async def current_async(self) -> Configuration:
        """``current`` for the event loop: a change is read in a thread, because listeners run git and use the store."""
        if self._contents() != self._read:
            return await asyncio.to_thread(self.current)
        return self._current

    def reload(self) -> bool:
        """Read the files, changed or not; if they are invalid, keep the configuration in use and return False."""
        with self._lock:
            self._read = self._contents()
            try:
                read = read_configuration(self.folder, trusted_uids=self.trusted_uids)
            except ConfigurationError as error:
                self.problem = str(error)
                _LOG.error("dispatch_configuration_refused", extra={"error": str(error)})
                return False
            self.problem = None
            self._current = read
            _LOG.info("dispatch_configuration_loaded", extra={"runners": len(read.runners.runners)})
            for listener in self._listeners:  # under the lock, so that they see configurations in order
                listener(read)
        return True

    def _contents(self) -> Contents:
        return tuple(_bytes(self.folder / name) for name in (RUNNERS, REPOS))


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
