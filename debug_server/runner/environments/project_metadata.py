"""Creates the ``dist-info`` and the scripts of the project under test, without installing it.

Programs read them through ``importlib.metadata``, and test suites call the project's scripts. They contain no code and
no path, so one folder is used for all workspaces with the same metadata.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.disk import remove_tree
from debug_server.runner.environments.layout import Layout
from debug_server.runner.environments.project_files import (
    IniFile,
    parse_ini,
    read_ini,
    read_project,
    read_text,
    table_at,
    texts_of,
)
from debug_server.runner.environments.setup_files import read_setup_py

# Blanks within one line only: across empty lines the match would take quadratic time.
_VERSION = re.compile(
    r"""^[ \t]*(?:__version__|version|VERSION)[ \t]*(?::[ \t]*\w+[ \t]*)?=[ \t]*["']([^"'\n]+)["']""", re.MULTILINE
)
_VERSION_FILES = ("__init__.py", "_version.py", "__version__.py", "__about__.py", "version.py")
_NUMBER = re.compile(r"v?\d[\w.!+-]*$")  # not ``attr: app.__version__``
_UNKNOWN_VERSION = "0.0.0"
_SCRIPT = """#!/usr/bin/env python3
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.exit({call}())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Project:
    name: str
    version: str
    metadata: str
    entry_points: dict[str, dict[str, str]]  # group -> name -> module:object


def describe_project(workspace: Path, roots: Sequence[Path], home: Path | None) -> Path | None:
    """A folder with the project's ``dist-info`` and scripts, for PYTHONPATH and PATH; None if it has no name."""
    project = None if home is None else _read(workspace, roots)
    if project is None or home is None:
        return None
    content = json.dumps([project.name, project.version, project.metadata, project.entry_points])
    folder = Layout(home).projects / hashlib.sha256(content.encode()).hexdigest()[:20]
    if not folder.is_dir():
        _write(folder, project)
    return folder


def _read(workspace: Path, roots: Sequence[Path]) -> _Project | None:
    project, config = read_project(workspace), read_ini(workspace / "setup.cfg")
    table, poetry = table_at(project, "project"), table_at(project, "tool", "poetry")
    call = read_setup_py(workspace)
    arguments = {} if call is None else call.literals
    metadata = config.sections.get("metadata", {})
    released = _package_info(workspace)
    sources = (table, poetry, metadata, arguments)
    name = _first(sources, "name") or released.get("Name")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        return None
    stated = _first(sources, "version")
    version = stated if stated and _NUMBER.match(stated) else None
    version = version or released.get("Version") or _find_version(name, roots)
    return _Project(
        name=name,
        version=version,
        metadata=f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{''.join(_requirement_lines(table))}",
        entry_points=_entry_points(table) or _other_entry_points(poetry, config, arguments.get("entry_points")),
    )


def _first(sources: Sequence[Mapping[str, Any]], name: str) -> str | None:
    return next((value for source in sources if isinstance(value := source.get(name), str)), None)


def _requirement_lines(table: dict[str, Any]) -> Iterator[str]:
    """The requirements that ``[project]`` lists, as a wheel states them."""
    yield from (f"Requires-Dist: {item}\n" for item in texts_of(table.get("dependencies", [])))
    for extra, items in table_at(table, "optional-dependencies").items():
        yield f"Provides-Extra: {extra}\n"
        for item in texts_of(items):
            requirement, _, marker = item.partition(";")
            condition = f"({marker.strip()}) and " if marker else ""
            yield f"Requires-Dist: {requirement.strip()} ; {condition}extra == '{extra}'\n"


def _package_info(workspace: Path) -> dict[str, str]:
    """The fields of PKG-INFO, which a source distribution carries."""
    head = read_text(workspace / "PKG-INFO").split("\n\n")[0]
    return {name: value for name, _, value in (line.partition(": ") for line in head.splitlines())}


def _find_version(name: str, roots: Sequence[Path]) -> str:
    package = re.sub(r"[-.]+", "_", name)
    for path in (root / package / file for root in roots for file in _VERSION_FILES):
        if path.is_file() and (match := _VERSION.search(read_text(path))):
            return match[1]
    return _UNKNOWN_VERSION


def _entry_points(table: dict[str, Any]) -> dict[str, dict[str, str]]:
    groups = {"console_scripts": table.get("scripts"), "gui_scripts": table.get("gui-scripts")}
    further = table.get("entry-points")
    if isinstance(further, dict):
        groups |= further
    return {
        group: {name: value for name, value in items.items() if isinstance(value, str)}
        for group, items in groups.items()
        if isinstance(items, dict) and items
    }


def _other_entry_points(poetry: dict[str, Any], config: IniFile, argument: object) -> dict[str, dict[str, str]]:
    """The entry points as Poetry, setup.cfg and the call of ``setup`` write them down."""
    if poetry:
        return _entry_points({"scripts": poetry.get("scripts"), "entry-points": poetry.get("plugins")})
    groups: dict[str, Any] = dict(config.sections.get("options.entry_points", {}))
    if isinstance(argument, str):
        groups |= {
            group: [f"{name}={value}" for name, value in items.items()]
            for group, items in parse_ini(argument).sections.items()
        }
    elif isinstance(argument, dict):
        groups |= argument
    found = {}
    for group, value in groups.items():
        lines = value.splitlines() if isinstance(value, str) else texts_of(value)
        pairs = (line.partition("=") for line in lines if "=" in line)
        found[group] = {name.strip(): target.strip() for name, _, target in pairs}
    return {group: items for group, items in found.items() if items}


def _write(folder: Path, project: _Project) -> None:
    draft = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}")
    info = draft / f"{re.sub(r'[-.]+', '_', project.name)}-{project.version.replace('/', '_')}.dist-info"
    info.mkdir(parents=True)
    (draft / "bin").mkdir()
    (info / "METADATA").write_text(project.metadata, "utf-8")
    (info / "entry_points.txt").write_text("".join(_entry_point_lines(project)), "utf-8")
    for name, value in project.entry_points.get("console_scripts", {}).items():
        _write_script(draft / "bin", name, value)
    try:
        draft.rename(folder)
    except OSError:  # another process was first; what it wrote is the same
        remove_tree(draft)


def _entry_point_lines(project: _Project) -> Iterator[str]:
    for group, items in project.entry_points.items():
        yield f"[{group}]\n"
        yield from (f"{name} = {value}\n" for name, value in items.items())
        yield "\n"


def _write_script(folder: Path, name: str, value: str) -> None:
    module, _, call = value.partition("[")[0].strip().partition(":")
    safe = re.fullmatch(r"[\w.-]+", name) and re.fullmatch(r"[\w.]+", module) and re.fullmatch(r"[\w.]+", call)
    if not safe:
        return
    script = folder / name
    script.write_text(_SCRIPT.format(module=module, first=call.partition(".")[0], call=call), "utf-8")
    script.chmod(0o755)
