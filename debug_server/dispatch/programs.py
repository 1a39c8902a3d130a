"""Finds the program of a runner: in the repository, then in ``runners/``, then among the shipped programs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.disk import check_trusted
from debug_server.dispatch.runners_file import Runner

FOLDER = "runners"
_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = (_PACKAGE / "shipped" / FOLDER, _PACKAGE.parent / FOLDER)  # of an installed package; of a checkout


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command line and the variables that it needs."""

    argv: tuple[str, ...]
    file: Path  # the program's file
    env: dict[str, str] = field(default_factory=dict)


def shipped_folder() -> Path | None:
    """The folder of the runner programs that this package ships, or None."""
    return next((folder for folder in _SHIPPED if (folder / "__init__.py").is_file()), None)


def find_program(
    runner: Runner, repository: Path, root: Path, shell: str, *, trusted_uids: Collection[int] | None = None
) -> Program | None:
    """The program of a bash or python runner, or None.

    ConfigurationError if it is in ``root``/runners and other users than the trusted ones can change it.
    """
    shipped = shipped_folder()
    for place in dict.fromkeys((repository, root / FOLDER, *([shipped] if shipped else []))):
        find = _bash if runner.executor == "bash" else _python
        program = find(runner, place, shell, own=place == repository)
        if program is not None:
            if place not in (repository, shipped):
                check_trusted(program.file, trusted_uids)
            return program
    return None


def call_program() -> Program:
    """The program that makes a grpc runner's call."""
    return Program(argv=(sys.executable, "-P", "-m", "debug_server.dispatch.call"), file=Path(sys.executable))


def _bash(runner: Runner, place: Path, shell: str, *, own: bool) -> Program | None:
    """A program in the repository is named relative to it: a leased workspace has its own copy."""
    name, *arguments = shlex.split(runner.program)
    path = _file_inside(place, name)
    if path is None:
        return None
    return Program(argv=(shell, f"./{name}" if own else str(path), *arguments), file=path)


def _python(runner: Runner, place: Path, shell: str, *, own: bool) -> Program | None:
    """``-P``: modules in the working directory, which anybody can commit to, must not shadow others."""
    relative = runner.program.replace(".", "/")
    path = _file_inside(place, f"{relative}.py") or _file_inside(place, f"{relative}/__main__.py")
    if path is None:
        return None
    search = "." if own else os.pathsep.join((str(place), str(place.parent)))
    return Program(argv=(sys.executable, "-P", "-m", runner.program), file=path, env={"PYTHONPATH": search})


def _file_inside(place: Path, relative: str) -> Path | None:
    """The file in ``place``, or None if it is missing or a link leads outside."""
    try:
        path = (place / relative).resolve(strict=True)
        inside = path.is_relative_to(place.resolve(strict=True))
    except OSError:
        return None
    return path if inside and path.is_file() else None
