"""The paths of everything about environments below one root.

<name>                        link to the last environment of this name
.by-fingerprint/<key>-<id>/   an environment at its final path; a rebuild gets another <id>
.seals/<key>.json             names the one environment that is complete; replaced by an atomic rename
.seals/<key>-<id>.<sha>.json  every file of that environment, with size and digest
.seals/<key>-<id>.compiled    its bytecode is complete
.seals/<key>.damaged          why the last seal was withdrawn
.locks/<key>                  held by the builder; contains the folder that is being built
.tmp/<key>/                   the TMPDIR of the build tool that runs under that lock
.tmp/<key>.project/           the copy of a project that it works on
.leases/<key>-<id>            a shared lock of each user; its mtime is the time of the last use
.leases/<key>-<id>@<pid>      a process that uses it and outlives the server (a keeper)
.builds/<key>-<id>/<key>-build/ what a build of a project under test made for that environment
.builds/placed-<sha>.json      which of it was copied into a workspace
.projects/<sha>/               name, version and scripts of a project under test
.state/<name>.json            which fingerprint a name last had
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import make_private, remove_tree

_LOG = logging.getLogger(__name__)

KEY_LENGTH = 20  # of the fingerprint's 64 digits: enough to be unique, short enough for a script's first line
MARKER = ".debug-server-environment"
_TRASH = ".trash-"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths under ``root``."""

    root: Path

    @property
    def environments(self) -> Path:
        """The folder of all environments."""
        return self.root / ".by-fingerprint"

    @property
    def seals(self) -> Path:
        """The folder of seals."""
        return self.root / ".seals"

    @property
    def leases(self) -> Path:
        """The folder of leases."""
        return self.root / ".leases"

    @property
    def state(self) -> Path:
        """The folder of dependency states."""
        return self.root / ".state"

    @property
    def projects(self) -> Path:
        """The folder of descriptions of projects under test."""
        return self.root / ".projects"

    @property
    def builds(self) -> Path:
        """The folder of built projects."""
        return self.root / ".builds"

    @property
    def probes(self) -> Path:
        """The file with the cached answers of probed programs."""
        return self.root / ".probes.json"

    def seal(self, key: str) -> Path:
        """The seal of a fingerprint."""
        return self.seals / f"{key}.json"

    def damage(self, key: str) -> Path:
        """The note about a withdrawn seal."""
        return self.seals / f"{key}.damaged"

    def compiled(self, directory: str) -> Path:
        """The file that says that the environment in ``directory`` has all its bytecode."""
        return self.seals / f"{directory}.compiled"

    def lock(self, key: str) -> Path:
        """The build lock of a fingerprint."""
        return self.root / ".locks" / key

    def temporary(self, key: str) -> Path:
        """The temporary folder of a fingerprint's build tools."""
        return self.root / ".tmp" / key

    def temporaries(self) -> list[Path]:
        """The temporary folders that are there: of builds that run, or were killed."""
        return sorted((self.root / ".tmp").glob("*"))

    def new_directory(self, key: str) -> Path:
        """A new path, never used before: a builder that still runs cannot write into a later environment."""
        return self.environments / f"{key}-{secrets.token_hex(4)}"

    def directories(self, key: str = "") -> list[Path]:
        """The environments of a fingerprint, or all."""
        try:
            found = [path for path in self.environments.iterdir() if path.name.startswith(key)]
        except FileNotFoundError:
            return []
        return sorted(path for path in found if not path.name.startswith(_TRASH))

    def prepare(self) -> None:
        """Create the folders."""
        for folder in (self.environments, self.seals, self.leases, self.state, self.root / ".locks"):
            make_private(folder)

    def remove(self, directory: Path) -> None:
        """Make an environment disappear at once, then delete it."""
        trash = directory.with_name(f"{_TRASH}{directory.name}")
        try:
            directory.rename(trash)
        except FileNotFoundError:
            return
        delete_tree(trash)

    def empty_trash(self) -> None:
        """Delete what a killed collector had only renamed."""
        for path in self.environments.glob(f"{_TRASH}*"):
            delete_tree(path)


def key_of(fingerprint: str) -> str:
    """The short form that file names carry."""
    return fingerprint[:KEY_LENGTH]


def key_of_directory(name: str) -> str:
    """The key in ``<key>-<id>``."""
    return name.rpartition("-")[0]


def delete_tree(path: Path) -> None:
    """Delete a folder, including read-only folders in it; what cannot be deleted is logged."""
    if left := remove_tree(path):
        _LOG.warning("removal_incomplete", extra={"path": str(path), "left": [str(item) for item in left]})
