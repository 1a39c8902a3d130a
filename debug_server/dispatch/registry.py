"""Reads and changes ``repos.yml``: under a lock and in place, so that comments and order are kept."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from debug_server.dispatch.configuration import LiveConfiguration
from debug_server.dispatch.repos_file import FIELDS, NAME, Repo, ReposFile, parse_repos
from debug_server.dispatch.yaml_file import read_text
from debug_server.errors import ConflictError, InvalidInputError, NotFoundError

_MAX_VALUE = 4096


class RepoRegistry:
    """The repositories; safe to use from several threads and processes.

    Answers have absolute paths; the file keeps the paths as they were written.
    """

    def __init__(self, configuration: LiveConfiguration, check_folder: Callable[[Path], None]) -> None:
        """``check_folder`` raises InvalidInputError for a folder that runners must not work in."""
        self._configuration = configuration
        self._check_folder = check_folder

    def list_repos(self, status: str = "") -> list[Repo]:
        """All repositories, or those with one status."""
        file = self._file()
        return [_with_absolute_path(file, repo) for repo in file.repos.values() if status in ("", repo.status)]

    def get(self, name: str) -> Repo:
        """One repository, or NotFoundError."""
        file = self._file()
        return _with_absolute_path(file, known(file, name))

    def path_of(self, name: str) -> Path:
        """Its path on this machine; NotFoundError if it is not registered or the path is missing."""
        file = self._file()
        path = file.path_of(known(file, name))
        if not path.is_dir():
            raise NotFoundError(f"the local path {path} of {name} is missing")
        self._check_owner(path)
        return path.resolve()

    def add(self, repo: Repo) -> None:
        """Register a repository; ConflictError if the name is taken."""
        if not NAME.fullmatch(repo.name):
            raise InvalidInputError(f"name {repo.name!r} may contain only letters, digits, '.', '_' and '-'")
        values = {name: getattr(repo, name) for name in FIELDS}
        _check(values)
        with self._locked() as (path, text):
            file = parse_repos(path, text, self._root())
            if repo.name in file.repos:
                raise ConflictError(f"repository {repo.name!r} is already in {path}: update it instead")
            self._check_owner(file.path_of(repo))
            lines = "".join(f"    {name}: {json.dumps(value)}\n" for name, value in values.items() if value)
            self._write(path, _appended(text, f"\n  {repo.name}:\n{lines}"))

    def update(self, name: str, changes: Mapping[str, str]) -> None:
        """Change fields of a repository; unknown fields are refused."""
        _check(changes)
        with self._locked() as (path, now):
            file = parse_repos(path, now, self._root())
            repo = known(file, name)
            changed = now
            for field, value in changes.items():
                if field == "local_path" and _same_path(file, repo, value):
                    continue  # the absolute path from an answer: keep the path as it was written
                if field == "local_path":
                    self._check_owner(file.path_of(dataclasses.replace(repo, local_path=value)))
                changed = _with_field(changed, name, field, value)
            self._write(path, changed)

    def _check_owner(self, path: Path) -> None:
        """InvalidInputError for another user's folder: runners would work there as the server's user."""
        if path.is_dir():
            self._check_folder(path)

    def _file(self) -> ReposFile:
        return self._configuration.current().repos

    def _root(self) -> Path:
        return self._file().root

    @contextmanager
    def _locked(self) -> Iterator[tuple[Path, str]]:
        """The path and text of the file, locked against other processes of ours; editors ignore the lock."""
        path = self._file().path
        descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield path, read_text(path)
        finally:
            os.close(descriptor)

    def _write(self, path: Path, text: str) -> None:
        """Check the whole text, then replace the file."""
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
    """The entry of a repository, or NotFoundError."""
    if name not in file.repos:
        raise NotFoundError(f"repository {name!r} is not in {file.path}")
    return file.repos[name]


def _with_absolute_path(file: ReposFile, repo: Repo) -> Repo:
    return dataclasses.replace(repo, local_path=os.path.realpath(file.path_of(repo)))


def _same_path(file: ReposFile, repo: Repo, path: str) -> bool:
    return _with_absolute_path(file, repo) == _with_absolute_path(file, dataclasses.replace(repo, local_path=path))


def _check(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        if name not in FIELDS:
            raise InvalidInputError(f"unknown field {name!r}: use one of {', '.join(FIELDS)}")
        if len(value) > _MAX_VALUE or any(ord(letter) < 32 for letter in value):
            raise InvalidInputError(f"field {name!r} contains a control character or more than {_MAX_VALUE} characters")
        if name == "local_path" and (not value or ".." in Path(value).parts):
            raise InvalidInputError(f"local_path {value!r} must be a path without '..'")


def _mapping(text: str, *keys: str) -> Any:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in keys:
        name, node = next((name, value) for name, value in node.value if name.value == key)
        _refuse_alias(name, node)
    return node


def _refuse_alias(key: Any, node: Any) -> None:
    """ConflictError for an alias: its value stands elsewhere, and a change there would affect other entries."""
    if node.start_mark.index < key.end_mark.index:
        raise ConflictError(f"{key.value!r} of repos.yml is an alias (*): write the value itself to change it here")


def _appended(text: str, block: str) -> str:
    """The text with a block after the last entry of ``repos``."""
    entries = _mapping(text, "repos")
    if entries.flow_style:
        raise ConflictError("the repositories in repos.yml are in braces: write them as a block to change them here")
    end = max(value.end_mark.index for _, value in entries.value)
    place = len(text[:end].rstrip())
    return f"{text[:place]}\n{block}{text[place:].removeprefix(chr(10))}"


def _with_field(text: str, name: str, field: str, value: str) -> str:
    """The text with one field of an entry changed in place, or added."""
    entry = _mapping(text, "repos", name)
    for key, node in entry.value:
        if key.value == field:
            _refuse_alias(key, node)
            return text[: node.start_mark.index] + json.dumps(value) + text[node.end_mark.index :]
    if entry.flow_style:
        raise ConflictError(f"{name} is in braces: write it as a block to add {field!r} here")
    start = entry.value[0][0].start_mark
    return f"{text[: start.index]}{field}: {json.dumps(value)}\n{' ' * start.column}{text[start.index :]}"
