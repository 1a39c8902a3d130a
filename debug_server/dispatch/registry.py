"""Reading and changing ``repos.yml``: under a lock, in place, so that comments and order stay as people wrote them."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from debug_server.dispatch.configuration import LiveConfiguration
from debug_server.dispatch.document import read_text
from debug_server.dispatch.repos_file import FIELDS, NAME, Repo, ReposFile, parse_repos
from debug_server.errors import ConflictError, InvalidInputError, NotFoundError
from debug_server.worktrees.repository_trust import OWN_USER_ONLY, Trust

_MAX_VALUE = 4096


class RepoRegistry:
    """The repositories; safe to use from several threads and processes.

    Answers have absolute paths, which mean the same to everybody who asks; the file keeps what people wrote.
    """

    def __init__(self, configuration: LiveConfiguration, trust: Trust = OWN_USER_ONLY) -> None:
        self._configuration = configuration
        self._trust = trust

    def list_repos(self, status: str = "") -> list[Repo]:
        """All of them, or those of one status."""
        file = self._file()
        return [_placed(file, repo) for repo in file.repos.values() if status in ("", repo.status)]

    def get(self, name: str) -> Repo:
        """One of them, or NotFoundError."""
        file = self._file()
        return _placed(file, known(file, name))

    def place(self, name: str) -> Path:
        """Where it is on this machine; NotFoundError when it is not registered or not there."""
        found = self._file()
        path = found.place(known(found, name))
        if not path.is_dir():
            raise NotFoundError(f"the local path {path} of {name} is missing")
        self._check_owner(path)
        return path.resolve()

    def add(self, repo: Repo) -> None:
        """Register another one; ConflictError when there is one of that name."""
        if not NAME.fullmatch(repo.name):
            raise InvalidInputError(f"name {repo.name!r} must be made of letters, digits, '.', '_' and '-'")
        values = {name: getattr(repo, name) for name in FIELDS}
        _check(values)
        with self._locked() as (path, text):
            file = parse_repos(path, text, self._root())
            if repo.name in file.repos:
                raise ConflictError(f"repository {repo.name!r} is in {path} already: update it instead")
            self._check_owner(file.place(repo))
            lines = "".join(f"    {name}: {json.dumps(value)}\n" for name, value in values.items() if value)
            self._write(path, _appended(text, f"\n  {repo.name}:\n{lines}"))

    def update(self, name: str, changes: Mapping[str, str]) -> None:
        """Change fields of one; unknown fields are refused."""
        _check(changes)
        with self._locked() as (path, now):
            file = parse_repos(path, now, self._root())
            repo = known(file, name)
            changed = now
            for field, value in changes.items():
                if field == "local_path" and _same_place(file, repo, value):
                    continue  # an answer of ours that came back: what people wrote stays
                if field == "local_path":
                    self._check_owner(file.place(dataclasses.replace(repo, local_path=value)))
                changed = _with_field(changed, name, field, value)
            self._write(path, changed)

    def _check_owner(self, path: Path) -> None:
        """InvalidInputError for another user's folder: programs of ours work there as this server's user."""
        if path.is_dir():
            self._trust.check_folder(path)

    def _file(self) -> ReposFile:
        return self._configuration.current().repos

    def _root(self) -> Path:
        return self._file().root

    @contextmanager
    def _locked(self) -> Iterator[tuple[Path, str]]:
        """The file as it is now, and nobody else changes it in the block; people's editors do not ask."""
        path = self._file().path
        descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield path, read_text(path)
        finally:
            os.close(descriptor)

    def _write(self, path: Path, text: str) -> None:
        """Checked as a whole before it is put in place, all or nothing."""
        parse_repos(path, text, self._root())
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            Path(draft).replace(path)
        finally:
            with suppress(FileNotFoundError):
                Path(draft).unlink()
        self._configuration.reload()


def known(file: ReposFile, name: str) -> Repo:
    """The entry, or NotFoundError."""
    if name not in file.repos:
        raise NotFoundError(f"repository {name!r} is not in {file.path}")
    return file.repos[name]


def _placed(file: ReposFile, repo: Repo) -> Repo:
    return dataclasses.replace(repo, local_path=os.path.realpath(file.place(repo)))


def _same_place(file: ReposFile, repo: Repo, path: str) -> bool:
    return _placed(file, repo) == _placed(file, dataclasses.replace(repo, local_path=path))


def _check(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        if name not in FIELDS:
            raise InvalidInputError(f"field {name!r} is not known: use some of {', '.join(FIELDS)}")
        if len(value) > _MAX_VALUE or any(ord(letter) < 32 for letter in value):
            raise InvalidInputError(f"field {name!r} holds a control character or more than {_MAX_VALUE} characters")
        if name == "local_path" and (not value or ".." in Path(value).parts):
            raise InvalidInputError(f"local_path {value!r} must be a path without '..'")


def _mapping(text: str, *keys: str) -> Any:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in keys:
        name, node = next((name, value) for name, value in node.value if name.value == key)
        _check_place(name, node)
    return node


def _check_place(key: Any, node: Any) -> None:
    """An alias stands for a value elsewhere: changed there, it would change for others too."""
    if node.start_mark.index < key.end_mark.index:
        raise ConflictError(f"{key.value!r} of repos.yml is an alias (*): write its value out to change it here")


def _appended(text: str, block: str) -> str:
    """With a block behind the last entry of ``repos``."""
    entries = _mapping(text, "repos")
    if entries.flow_style:
        raise ConflictError("repos.yml writes its repositories in braces: write them as a block to change them here")
    end = max(value.end_mark.index for _, value in entries.value)
    place = len(text[:end].rstrip())
    return f"{text[:place]}\n{block}{text[place:].removeprefix(chr(10))}"


def _with_field(text: str, name: str, field: str, value: str) -> str:
    """With one scalar changed where it stands, or added below the entry's name."""
    entry = _mapping(text, "repos", name)
    for key, node in entry.value:
        if key.value == field:
            _check_place(key, node)
            return text[: node.start_mark.index] + json.dumps(value) + text[node.end_mark.index :]
    if entry.flow_style:
        raise ConflictError(f"{name} is written in braces: write it as a block to add {field!r} here")
    start = entry.value[0][0].start_mark
    return f"{text[: start.index]}{field}: {json.dumps(value)}\n{' ' * start.column}{text[start.index :]}"
