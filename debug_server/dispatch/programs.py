"""What a runner's cmd or module is on this disk: looked up in the repository, then among the runners."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.dispatch.runners_file import Runner

FOLDER = "runners"
_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = (_PACKAGE / "shipped" / FOLDER, _PACKAGE.parent / FOLDER)  # of an installed package; of a checkout


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An argument vector, and what it needs in its environment."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


def runner_folders(root: Path) -> list[Path]:
    """Where runner programs are looked for after the repository: beside ``config/``, then ours."""
    shipped = [folder for folder in _SHIPPED if (folder / "__init__.py").is_file()]
    return [folder for folder in dict.fromkeys((root / FOLDER, *shipped[:1])) if folder.is_dir()]


def find_program(runner: Runner, repository: Path, folders: Sequence[Path], shell: str) -> Program | None:
    """What to start for a bash or python runner; None when there is no such file."""
    for place in (repository, *folders):
        find = _bash if runner.executor == "bash" else _python
        program = find(runner, place, shell, own=place == repository)
        if program is not None:
            return program
    return None


def call_program() -> Program:
    """The program that makes a grpc runner's call: our own, so that a keeper holds it like any other."""
    return Program(argv=(sys.executable, "-P", "-m", "debug_server.dispatch.call"))


def _bash(runner: Runner, place: Path, shell: str, *, own: bool) -> Program | None:
    """A repository's own program is named relative to it: a leased workspace has its own copy."""
    name, *arguments = shlex.split(runner.program)
    path = _file_inside(place, name)
    return None if path is None else Program(argv=(shell, f"./{name}" if own else str(path), *arguments))


def _python(runner: Runner, place: Path, shell: str, *, own: bool) -> Program | None:
    """With ``-P``: the working directory, which anybody can commit to, is not searched for modules before ours."""
    relative = runner.program.replace(".", "/")
    if _file_inside(place, f"{relative}.py") is None and _file_inside(place, f"{relative}/__main__.py") is None:
        return None
    search = "." if own else os.pathsep.join((str(place), str(place.parent)))
    return Program(argv=(sys.executable, "-P", "-m", runner.program), env={"PYTHONPATH": search})


def _file_inside(place: Path, relative: str) -> Path | None:
    """The file, unless a link leads out of the place."""
    try:
        path = (place / relative).resolve(strict=True)
        inside = path.is_relative_to(place.resolve(strict=True))
    except OSError:
        return None
    return path if inside and path.is_file() else None
