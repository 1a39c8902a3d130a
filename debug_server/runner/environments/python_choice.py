"""Chooses the interpreter for a project: the newest installed one that fits what the project says about Python."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.interpreters import Interpreter, Interpreters, describe_interpreters
from debug_server.runner.environments.project_files import (
    parse_ini,
    read_ini,
    read_project,
    read_text,
    read_toml,
    value_at,
)
from debug_server.runner.environments.setup_files import read_setup_py
from debug_server.runner.environments.version_ranges import VersionRange, numbers_of, parse_range

_CLASSIFIER = re.compile(r"Programming Language :: Python :: (\d\.\d+)")
_PINNED = re.compile(r"(?:cpython-|python-?)?(\d+(?:\.\d+){0,2})")
_TOX_NAME = re.compile(r"(?<![a-z0-9])py(?:thon)?(3)\.?(\d+)")
_MAX_NAMES = 1000  # of a list of tox environments, whose braces multiply


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """One thing that a project says, and the file that says it."""

    text: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStatement:
    """What a project says about Python."""

    ranges: tuple[tuple[VersionRange, str], ...] = ()  # each with the file that states it; all must fit
    pinned: tuple[Stated, ...] = ()  # of .python-version, the preferred first
    tested: tuple[tuple[frozenset[str], str], ...] = ()  # minor versions and the file that lists them, the best first

    def __bool__(self) -> bool:
        return bool(self.ranges or self.pinned or self.tested)

    def fits(self, version: str) -> bool:
        """Whether all ranges contain a version."""
        return all(version in found for found, _ in self.ranges)


def choose_python(interpreters: Interpreters, statement: PythonStatement) -> tuple[Interpreter, str] | None:
    """The interpreter for a project and the reason; None if the project says nothing."""
    if not statement:
        return None
    installed = interpreters.installed()
    fitting = [item for item in installed if statement.fits(item.version)]
    if not fitting:
        raise EnvironmentBuildError(_refusal(statement, installed))
    for pin in statement.pinned:
        if exact := [item for item in fitting if f"{item.version}.".startswith(f"{pin.text}.")]:
            return _newest(exact), f"named by {pin.file}"
        if near := [item for item in fitting if _minor(item.version) == ".".join(pin.text.split(".")[:2])]:
            return _newest(near), f"for {pin.text} in {pin.file}"
    for minors, file in statement.tested:
        if tested := [item for item in fitting if _minor(item.version) in minors]:
            return _newest(tested), f"the newest installed that {file} names"
    if not statement.ranges:
        return None
    return _newest(fitting), f"the newest installed that fits {_ranges(statement)}"


def read_statement(root: Path, manifests: Iterable[Path]) -> PythonStatement:
    """What the projects of ``manifests`` say about Python: for each the nearest folder up to ``root`` that says it."""
    folders = dict.fromkeys(path.parent for path in manifests)
    spoken = (next((found for found in _upwards(folder, root) if _read([found])), root) for folder in folders)
    return _read(dict.fromkeys(spoken))


def _upwards(folder: Path, root: Path) -> Iterator[Path]:
    yield from (path for path in (folder, *folder.parents) if path.is_relative_to(root))


def _read(folders: Iterable[Path]) -> PythonStatement:
    ranges: dict[str, tuple[VersionRange, str]] = {}
    pinned: list[Stated] = []
    tox: list[tuple[frozenset[str], str]] = []
    classified: list[tuple[frozenset[str], str]] = []
    for folder in folders:
        project = read_project(folder)
        for text, file in _requirements(folder, project):
            if (found := parse_range(text)) is not None:
                ranges.setdefault(found.text, (found, file))
        pinned += _pins(folder)
        tox += [(minors, file) for text, file in _tox_lists(folder, project) if (minors := _tox_minors(text))]
        classified += [(minors, file) for text, file in _classifiers(folder, project) if (minors := _classified(text))]
    return PythonStatement(ranges=tuple(ranges.values()), pinned=tuple(pinned), tested=(*tox, *classified[:1]))


def _refusal(statement: PythonStatement, installed: Sequence[Interpreter]) -> str:
    wanted = next((found.text for found, _ in statement.ranges), "")
    return (
        f"no installed Python fits {_ranges(statement)}; there is: {describe_interpreters(installed)}. "
        f"Install one that fits (`uv python install '{wanted}'`), or name one to use it anyway (--python)"
    )


def _ranges(statement: PythonStatement) -> str:
    return " and ".join(f"{found.text!r} in {file}" for found, file in statement.ranges)


def _newest(found: Sequence[Interpreter]) -> Interpreter:
    return max(found, key=lambda item: (item.is_usual, numbers_of(item.version)))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _requirements(folder: Path, project: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Ranges of versions, with the file that states them."""
    call = read_setup_py(folder)
    found = [
        (value_at(project, "project", "requires-python"), "pyproject.toml"),
        (value_at(project, "tool", "poetry", "dependencies", "python"), "pyproject.toml"),
        (value_at(project, "tool", "flit", "metadata", "requires-python"), "pyproject.toml"),
        (read_ini(folder / "setup.cfg").text("options", "python_requires"), "setup.cfg"),
        (None if call is None else call.literals.get("python_requires"), "setup.py"),
    ]
    stated = [(text, file) for text, file in found if isinstance(text, str) and text.strip()]
    if not stated:  # a source distribution, whose setup.py computes it
        stated = [(text, "PKG-INFO") for text in re.findall(r"(?m)^Requires-Python: (.+)$", _head(folder))]
    yield from stated


def _pins(folder: Path) -> Iterator[Stated]:
    for line in read_text(folder / ".python-version").splitlines():
        if match := _PINNED.fullmatch(line.strip()):
            yield Stated(text=match[1], file=".python-version")


def _classifiers(folder: Path, project: dict[str, Any]) -> Iterator[tuple[str, str]]:
    call = read_setup_py(folder)
    yield str(value_at(project, "project", "classifiers")), "pyproject.toml"
    yield str(value_at(project, "tool", "poetry", "classifiers")), "pyproject.toml"
    yield read_ini(folder / "setup.cfg").text("metadata", "classifiers"), "setup.cfg"
    yield str(None if call is None else call.literals.get("classifiers")), "setup.py"
    yield _head(folder), "PKG-INFO"


def _classified(text: str) -> frozenset[str]:
    return frozenset(_CLASSIFIER.findall(text))


def _tox_lists(folder: Path, project: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lists of tox environments."""
    for text, file in (
        (read_text(folder / "tox.ini"), "tox.ini"),
        (str(value_at(project, "tool", "tox", "legacy_tox_ini") or ""), "pyproject.toml"),
    ):
        yield parse_ini(text).text("tox", "envlist", "env_list"), file
    yield str(value_at(read_toml(folder / "tox.toml"), "env_list") or ""), "tox.toml"
    yield str(value_at(project, "tool", "tox", "env_list") or ""), "pyproject.toml"


def _tox_minors(text: str) -> frozenset[str]:
    """The minor versions in a list such as ``py{39,310}-{a,b}, py312``."""
    names = itertools.islice(_expanded(text), _MAX_NAMES)
    return frozenset(f"{major}.{minor}" for name in names for major, minor in _TOX_NAME.findall(name))


def _expanded(text: str) -> Iterator[str]:
    """``text`` for each choice of its braces that follow ``py``; the others say nothing about Python."""
    yield text
    for match in re.finditer(r"py(?:thon)?(3\.?)?\{([^{}]*)\}", text):
        for choice in re.split(r"[,\s]+", match[2]):
            first, _, last = choice.partition("-")
            numbers = range(int(first), int(last) + 1) if first.isdigit() and last.isdigit() else (choice,)
            yield from (f" py{match[1] or ''}{number}" for number in itertools.islice(numbers, 50))


def _head(folder: Path) -> str:
    return read_text(folder / "PKG-INFO").split("\n\n")[0]
