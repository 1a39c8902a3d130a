"""Extras and dependency groups of a project, in every notation: PEP 735, Poetry, PDM, hatch, setuptools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.project_files import read_ini, read_project, read_text, table_at, texts_of
from debug_server.runner.environments.setup_files import read_setup_py

_CARET = re.compile(r"\^\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?[\w.]*")
_TILDE = re.compile(r"~\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?[\w.]*")
_NUMBER = re.compile(r"v?\d[\w.!+*]*")
_PYTHON = "python"


def declared_extras(folder: Path) -> list[str]:
    """The names of the extras of the project in ``folder``."""
    project, call = read_project(folder), read_setup_py(folder)
    written = None if call is None else call.literals.get("extras_require")
    tables = [
        table_at(project, "project", "optional-dependencies"),
        table_at(project, "tool", "poetry", "extras"),
        table_at(project, "tool", "flit", "metadata", "requires-extra"),
        read_ini(folder / "setup.cfg").sections.get("options.extras_require", {}),
        table_at(project, "tool", "setuptools", "dynamic", "optional-dependencies"),
        written if isinstance(written, dict) else {},
    ]
    released = re.findall(r"(?m)^Provides-Extra: (.+)$", read_text(folder / "PKG-INFO").split("\n\n")[0])
    names = [name for table in tables for name in table if ":" not in name]
    return list(dict.fromkeys([*names, *(name.strip() for name in released)]))


def declared_groups(folder: Path) -> list[str]:
    """The names of the dependency groups of the project in ``folder``, those of hatch as ``hatch:NAME``."""
    project = read_project(folder)
    return list(dict.fromkeys([*table_at(project, "dependency-groups"), *_other_groups(project)]))


def split_groups(folders: Sequence[Path], names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The groups of PEP 735, which uv reads itself, and the requirements of the other groups."""
    known, requirements = [], []
    for name in names:
        folder = next((folder for folder in folders if name in declared_groups(folder)), None)
        if folder is None:
            defined = ", ".join(group for folder in folders for group in declared_groups(folder)) or "none"
            raise EnvironmentBuildError(f"there is no dependency group named {name!r}; defined: {defined}")
        project = read_project(folder)
        if name in table_at(project, "dependency-groups"):
            known.append(name)
        else:
            requirements += _other_groups(project)[name]
    return known, requirements


def _other_groups(project: dict[str, Any]) -> dict[str, list[str]]:
    """The groups of Poetry, PDM and hatch."""
    poetry = table_at(project, "tool", "poetry")
    found: dict[str, list[str]] = {}
    if old := table_at(poetry, "dev-dependencies"):
        found["dev"] = list(poetry_requirements(old))
    for name, group in table_at(poetry, "group").items():
        found[name] = [*found.get(name, []), *poetry_requirements(table_at(group, "dependencies"))]
    for name, items in table_at(project, "tool", "pdm", "dev-dependencies").items():
        found.setdefault(name, [item for item in texts_of(items) if not item.startswith("-e")])
    for name, environment in table_at(project, "tool", "hatch", "envs").items():
        if isinstance(environment, dict):
            lists = (environment.get("dependencies"), environment.get("extra-dependencies"))
            if items := [item for value in lists for item in texts_of(value) if "{" not in item]:
                found[f"hatch:{name}"] = items
    return found


def hatch_features(folder: Path, name: str) -> list[str]:
    """The extras that an environment of hatch asks for."""
    return texts_of(table_at(read_project(folder), "tool", "hatch", "envs", name).get("features", []))


def poetry_requirements(table: Mapping[str, Any]) -> Iterator[str]:
    """The dependencies of a table of Poetry as requirements; what lies in folders of the project is left out."""
    for name, value in table.items():
        if name.lower() == _PYTHON:
            continue
        for item in value if isinstance(value, list) else [value]:
            if (text := _poetry_requirement(name, item)) is not None:
                yield text


def _poetry_requirement(name: str, value: object) -> str | None:
    if isinstance(value, str):
        return f"{name}{_poetry_range(value)}"
    if not isinstance(value, dict) or "path" in value:
        return None
    extras = ",".join(texts_of(value.get("extras", [])))
    full = f"{name}[{extras}]" if extras else name
    markers = texts_of(value.get("markers", []))
    python = value.get("python")
    if isinstance(python, str) and (wanted := _poetry_range(python)):
        markers += [f"python_version {_marker(part)}" for part in wanted.split(",")]
    marker = f" ; {' and '.join(f'({item})' for item in markers)}" if markers else ""
    if isinstance(url := value.get("git"), str):
        revision = next((value[key] for key in ("rev", "tag", "branch") if isinstance(value.get(key), str)), None)
        return f"{full} @ git+{url}{f'@{revision}' if revision else ''}{marker}"
    if isinstance(url := value.get("url"), str):
        return f"{full} @ {url}{marker}"
    version = value.get("version", "*")
    return f"{full}{_poetry_range(version) if isinstance(version, str) else ''}{marker}"


def _marker(clause: str) -> str:
    match = re.fullmatch(r"([<>=!~]+)(.*)", clause)
    return f"{match[1]} '{'.'.join(match[2].split('.')[:2])}'" if match else "> '0'"


def _poetry_range(text: str) -> str:
    """A range of Poetry as one of PEP 440; alternatives (``||``) as the first that is written."""
    parts = [part.strip() for part in text.split("||", maxsplit=1)[0].split(",")]
    return ",".join(_poetry_clause(part) for part in parts if part not in ("", "*"))


def _poetry_clause(part: str) -> str:
    if match := _CARET.fullmatch(part):
        numbers = [int(item or 0) for item in match.groups()]
        place = next((place for place, number in enumerate(numbers) if number), len(match[0].split(".")) - 1)
        return f">={part[1:].strip()},<{_raised(numbers, place)}"
    if (match := _TILDE.fullmatch(part)) and not part.startswith("~="):
        numbers = [int(item or 0) for item in match.groups()]
        return f">={part[1:].strip()},<{_raised(numbers, 0 if match[2] is None else 1)}"
    return f"=={part}" if _NUMBER.fullmatch(part) else part.replace(" ", "")


def _raised(numbers: list[int], place: int) -> str:
    return ".".join(str(number) for number in [*numbers[:place], numbers[place] + 1])
