"""What tox installs for the tests of a project."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.runner.environments.project_files import (
    IniFile,
    parse_ini,
    read_project,
    read_text,
    read_toml,
    table_at,
    texts_of,
)

_REFERENCE = re.compile(r"\{\[([^]{}]+)\]([\w.-]+)\}")
_ROOT = re.compile(r"\{(?:toxinidir|tox_root)\}[/\\]?|\{/\}")
_FILE = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")
_CONDITION = re.compile(r"[\w,!.{}*-]+\s*:\s+|[a-z][\w,!.-]*:\s*(?=[A-Za-z])")
_MAX_DEPTH = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ToxDependencies:
    """What the environments for tests have in common."""

    file: str
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # of requirements
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.packages or self.files or self.extras or self.groups)


def tox_dependencies(folder: Path) -> ToxDependencies | None:
    """What tox installs into each of its environments; lines for some of them only are left out."""
    project = read_project(folder)
    legacy = table_at(project, "tool", "tox").get("legacy_tox_ini")
    found = [
        _of_ini(parse_ini(read_text(folder / "tox.ini")), "tox.ini"),
        _of_ini(parse_ini(legacy), "pyproject.toml") if isinstance(legacy, str) else None,
        _of_table(table_at(read_toml(folder / "tox.toml"), "env_run_base"), "tox.toml"),
        _of_table(table_at(project, "tool", "tox", "env_run_base"), "pyproject.toml"),
    ]
    return next((item for item in found if item), None)


def _of_ini(file: IniFile, name: str) -> ToxDependencies:
    lines = _resolved(file, file.text("testenv", "deps"), _MAX_DEPTH).splitlines()
    return _of_lines(
        lines,
        name,
        extras=_words(file.text("testenv", "extras")),
        groups=_words(file.text("testenv", "dependency_groups")),
    )


def _of_table(table: dict[str, Any], name: str) -> ToxDependencies:
    return _of_lines(
        texts_of(table.get("deps", [])),
        name,
        extras=texts_of(table.get("extras", [])),
        groups=texts_of(table.get("dependency_groups", [])),
    )


def _of_lines(lines: list[str], file: str, *, extras: list[str], groups: list[str]) -> ToxDependencies:
    packages, files = [], []
    for line in lines:
        text = _ROOT.sub("", line.split(" #")[0].strip())
        if not text or "{" in text or text.startswith(("#", "-c", "-e", ".")) or _CONDITION.match(text):
            continue
        if match := _FILE.fullmatch(text):
            files.append(match[1])
        elif not text.startswith("-"):
            packages.append(text)
    return ToxDependencies(
        file=file, packages=tuple(packages), files=tuple(files), extras=tuple(extras), groups=tuple(groups)
    )


def _resolved(file: IniFile, text: str, depth: int) -> str:
    """``text`` with the values that it refers to in other sections."""
    if depth == 0:
        return text
    return _REFERENCE.sub(lambda match: _resolved(file, file.text(match[1], match[2]), depth - 1), text)


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text) if word and "{" not in word and ":" not in word]
