"""Lists the files of an environment with size, mode and digest, and finds files that differ from the list later.

A wheel contains a RECORD with the digest of each of its files; the installed files are compared with it before the
environment is sealed.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from debug_server.runner.environments.protection import WRITING

ADDED = "was added"
_MAX_SHOWN = 3  # problems that are named; the others are counted
_MISSING, _UNREADABLE = "missing", "unreadable"  # in the place of a digest
_CHUNK = 1 << 20
_READERS = 2  # more threads are not faster: most files are small


class Entry(NamedTuple):
    """One file or symbolic link; a NamedTuple, because a build creates thousands."""

    mode: int  # without the write bits, which hard links in other environments may change
    size: int
    target: str | None  # of a symbolic link
    digest: str | None  # None for links


@dataclass(frozen=True, slots=True)
class Inventory:
    """The files of one environment by their path below it."""

    entries: dict[str, Entry]

    @property
    def total_bytes(self) -> int:
        """The sum of the sizes; hard links are counted as if they were copies."""
        return sum(entry.size for entry in self.entries.values())

    def packages(self) -> list[str]:
        """Installed distributions and conda packages, as ``name==version``."""
        found = {name for path in self.entries if (name := _package(path)) is not None}
        return sorted(found)

    def encode(self) -> bytes:
        """As JSON; the seal holds the digest of these bytes."""
        return json.dumps(self.entries, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Inventory:
        """The inverse of ``encode``."""
        return cls({path: Entry(*row) for path, row in json.loads(data).items()})


def take_inventory(root: Path) -> Inventory:
    """List ``root``, every file with the digest of its content."""
    entries = _walk(os.fspath(root))
    files = [path for path, entry in entries.items() if entry.target is None]
    for path, digest in _digests(root, files).items():
        entries[path] = entries[path]._replace(digest=digest)
    return Inventory(entries)


def misrecorded(root: Path, inventory: Inventory) -> dict[str, str]:
    """Path -> digest of every file that differs from the RECORDs of the distributions that list it."""
    wrong = {}
    for path, listed in _recorded_digests(root, inventory.entries).items():
        entry = inventory.entries.get(path)
        found = _MISSING if entry is None else entry.digest
        if found is not None and found not in listed:
            wrong[path] = found
    return wrong


def differences(root: Path, inventory: Inventory, *, contents: bool) -> dict[str, str]:
    """Path -> what is wrong with it; only names, modes and sizes unless ``contents``."""
    now = _walk(os.fspath(root))
    wrong = dict.fromkeys(now.keys() - inventory.entries.keys(), ADDED)
    for path, entry in inventory.entries.items():
        found = now.get(path)
        if found is None:
            wrong[path] = "is missing"
        elif (found.mode, found.size, found.target) != (entry.mode, entry.size, entry.target):
            wrong[path] = "has another size, mode or target"
    if contents:
        wrong |= _content_differences(root, inventory, skip=wrong)
    return wrong


def _content_differences(root: Path, inventory: Inventory, *, skip: dict[str, str]) -> dict[str, str]:
    files = [path for path, entry in inventory.entries.items() if entry.target is None and path not in skip]
    found = _digests(root, files)
    return {path: "has another content" for path in files if found[path] != inventory.entries[path].digest}


def describe(wrong: dict[str, str]) -> str:
    """A short sentence about ``differences``."""
    shown = [f"{path} {what}" for path, what in sorted(wrong.items())[:_MAX_SHOWN]]
    rest = len(wrong) - len(shown)
    return "; ".join(shown) + (f"; and {rest} more" if rest else "")


def distributions_of(root: Path, paths: set[str], entries: dict[str, Entry]) -> list[str]:
    """The distributions whose RECORD lists one of ``paths``, or whose ``dist-info`` contains one."""
    found = {_distribution(path) for path in paths if ".dist-info/" in path}
    for record, listed in _records(root, entries):
        if any(path in paths for path, _ in listed):
            found.add(_distribution(record))
    return sorted(found)


def _recorded_digests(root: Path, entries: dict[str, Entry]) -> dict[str, set[str]]:
    """Path -> digests, for every file whose RECORD has one; of a file of several packages, one of them is right."""
    found: dict[str, set[str]] = {}
    for _, listed in _records(root, entries):
        for path, digest in listed:
            if digest:
                found.setdefault(path, set()).add(digest)
    return found


def _records(root: Path, entries: dict[str, Entry]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for record in entries:
        if not record.endswith(".dist-info/RECORD") or _is_vendored(record):
            continue
        base = os.path.dirname(os.path.dirname(record))  # noqa: PTH120  (text paths: thousands of them)
        try:
            with (root / record).open(encoding="utf-8", errors="replace", newline="") as file:
                rows = [row for row in csv.reader(file) if len(row) == 3]
        except OSError:
            continue
        yield record, [(_below(base, row[0]), row[1].removeprefix("sha256=")) for row in rows if _usable(row[1])]


def _is_vendored(path: str) -> bool:
    """Whether a file of a ``dist-info`` lies inside another package, whose RECORD lists it."""
    _, inside, rest = path.partition("/site-packages/")
    return bool(inside) and "/" in rest.partition(".dist-info/")[0]


def _usable(digest: str) -> bool:
    return not digest or digest.startswith("sha256=")


def _below(base: str, path: str) -> str:
    return os.path.normpath(f"{base}/{path}") if path.startswith(("..", "/")) else f"{base}/{path}"


def _package(path: str) -> str | None:
    folder, _, name = path.rpartition("/")
    if name == "METADATA" and folder.endswith(".dist-info") and not _is_vendored(path):
        distribution, _, version = folder.rpartition("/")[2].removesuffix(".dist-info").partition("-")
        return f"{distribution}=={version}"
    if folder == "conda-meta" and name.endswith(".json"):
        distribution, version, _ = name.removesuffix(".json").rsplit("-", 2)
        return f"{distribution}=={version}"
    return None


def _distribution(path: str) -> str:
    """The name in ``…/name-version.dist-info/…``."""
    return path.partition(".dist-info/")[0].rpartition("/")[2].partition("-")[0]


def _walk(root: str) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(f"{root}/{folder}") as items:
            for item in items:
                path = f"{folder}{item.name}"
                if item.is_symlink():
                    entries[path] = Entry(0, 0, os.readlink(item.path), None)  # noqa: PTH115  (text paths)
                elif item.is_dir():
                    folders.append(f"{path}/")
                else:
                    status = item.stat(follow_symlinks=False)
                    entries[path] = Entry(status.st_mode & ~WRITING, status.st_size, None, None)
    return entries


def _digests(root: Path, paths: Sequence[str]) -> dict[str, str]:
    parts = [paths[start :: 4 * _READERS] for start in range(4 * _READERS)]
    with ThreadPoolExecutor(_READERS) as pool:
        done = pool.map(lambda part: [(path, digest_of(f"{root}/{path}")) for path in part], parts)
        return dict(pair for part in done for pair in part)


def digest_of(path: str) -> str:
    """The SHA-256 of a file as a RECORD has it; a word if it cannot be read."""
    content = hashlib.sha256()
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            while data := os.read(file, _CHUNK):
                content.update(data)
        finally:
            os.close(file)
    except OSError:
        return _UNREADABLE
    return base64.urlsafe_b64encode(content.digest()).rstrip(b"=").decode()
