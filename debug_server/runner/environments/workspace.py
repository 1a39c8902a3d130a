"""The variables of a command in one workspace: the shared packages, and the project under test from this workspace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.handle import EnvironmentHandle
from debug_server.runner.environments.project_files import read_ini, read_project, table_at, texts_of
from debug_server.runner.environments.project_metadata import describe_project
from debug_server.runner.environments.setup_files import read_setup_py

_MAX_MEMBERS = 10_000  # folders that one part of a glob may name


def workspace_environment(
    handle: EnvironmentHandle,
    workspace: str | os.PathLike[str],
    *,
    base_env: Mapping[str, str] | None = None,
    projects: Sequence[Path] = (),
    sites: Sequence[Path] = (),
) -> dict[str, str]:
    """The variables with which a command uses ``handle``'s programs and imports ``workspace``'s code.

    They override the command's other variables; remove ``PYTHONHOME`` as well. No bytecode is written: it would remain
    after its source was deleted, keep a deleted package's folder importable, and be used for a patched file with the
    same size and time. ``projects`` are the folders of the projects under test, by default the workspace; ``sites``
    are the results of their builds.
    """
    base = os.environ if base_env is None else base_env
    root = Path(workspace).absolute()
    folders = list(dict.fromkeys([*projects, root]))
    roots = list(dict.fromkeys(path for folder in folders for path in import_roots(folder)))
    described = [describe_project(folder, import_roots(folder), handle.home) for folder in folders]
    beside = [*sites, *(path for path in described if path is not None)]
    paths = [*map(str, roots), *map(str, beside)]
    programs = [*(str(path / "bin") for path in beside), str(handle.bin_path), base.get("PATH", os.defpath)]
    for path in (*paths, *programs[:-1]):
        if os.pathsep in path:
            raise EnvironmentBuildError(
                f"{path!r} contains {os.pathsep!r}, which separates the entries of PATH and PYTHONPATH: move the "
                "data folder, or rename the folder"
            )
    variables = {
        "VIRTUAL_ENV": str(handle.path),
        "PATH": os.pathsep.join(programs),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
    }
    if (handle.path / "conda-meta").is_dir():
        variables["CONDA_PREFIX"] = str(handle.path)
    return variables


def import_roots(workspace: Path) -> list[Path]:
    """The folders of ``workspace`` from which its projects are imported, the main one first."""
    data = read_project(workspace)
    found = dict.fromkeys(_own_roots(workspace, data))
    for member in _members(workspace, data):
        found |= dict.fromkeys(_own_roots(member, read_project(member)))
    return list(found)


def _own_roots(folder: Path, data: dict[str, Any]) -> list[Path]:
    declared = [folder / name for name in (*_declared(data), *_declared_to_setuptools(folder))]
    roots = [path for path in declared if path.is_dir() and _inside(path, folder)]
    if roots:
        return roots
    source = folder / "src"
    return [source] if source.is_dir() and not (source / "__init__.py").exists() and _has_code(source) else [folder]


def _declared(data: dict[str, Any]) -> Iterator[str]:
    """Source folders as setuptools, hatch, poetry and pdm write them down."""
    setuptools = table_at(data, "tool", "setuptools")
    yield from texts_of(table_at(setuptools, "packages", "find").get("where"))
    yield from texts_of(table_at(setuptools, "package-dir").get(""))
    for package in texts_of(table_at(data, "tool", "hatch", "build", "targets", "wheel").get("packages")):
        yield os.path.dirname(package) or "."  # noqa: PTH120  (text from a file)
    packages = table_at(data, "tool", "poetry").get("packages")
    for item in packages if isinstance(packages, list) else []:
        yield from texts_of(item.get("from") if isinstance(item, dict) else None)
    yield from texts_of(table_at(data, "tool", "pdm", "build").get("package-dir"))


def _declared_to_setuptools(folder: Path) -> Iterator[str]:
    """Source folders as setup.cfg and setup.py write them down."""
    config, call = read_ini(folder / "setup.cfg"), read_setup_py(folder)
    for line in config.lines("options", "package_dir"):
        package, _, name = line.partition("=")
        if not package.strip():
            yield name.strip()
    yield from config.lines("options.packages.find", "where")
    yield from texts_of(table_at({} if call is None else call.literals, "package_dir").get(""))


def _members(workspace: Path, data: dict[str, Any]) -> Iterator[Path]:
    """Further projects of the workspace that uv would install from their folders."""
    uv = table_at(data, "tool", "uv")
    for pattern in texts_of(table_at(uv, "workspace").get("members")):
        if not pattern.startswith("/") and ".." not in pattern:
            yield from (path for path in sorted(_matched(workspace, pattern)) if (path / "pyproject.toml").is_file())
    for source in table_at(uv, "sources").values():
        path = source.get("path") if isinstance(source, dict) else None
        if isinstance(path, str) and (workspace / path).is_dir() and _inside(workspace / path, workspace):
            yield workspace / path


def _matched(workspace: Path, pattern: str) -> list[Path]:
    """The folders that match a glob, each once.

    Not ``Path.glob``, which follows two links to their own folder 2^40 times.
    """
    found = [workspace]
    for part in PurePosixPath(pattern).parts:
        step = _all_below if part == "**" else partial(_children, name=part)
        found = list(islice(_distinct(chain.from_iterable(map(step, found))), _MAX_MEMBERS))
    return found


def _distinct(folders: Iterable[Path]) -> Iterator[Path]:
    """Each folder once, even if several paths lead to it."""
    seen = set()
    for folder in folders:
        with suppress(OSError):  # removed meanwhile, or not readable
            status = folder.stat()
            if (place := (status.st_dev, status.st_ino)) not in seen:
                seen.add(place)
                yield folder


def _all_below(folder: Path) -> Iterator[Path]:
    """The folder itself and every real one in it."""
    return (Path(path) for path, _, _ in os.walk(folder))


def _children(folder: Path, *, name: str) -> Iterator[Path]:
    try:
        found = [path for path in folder.iterdir() if fnmatchcase(path.name, name) and path.is_dir()]
        return iter(sorted(found, key=lambda path: (path.is_symlink(), path)))  # a link to another of them comes later
    except OSError:  # removed meanwhile, or not readable
        return iter(())


def _has_code(folder: Path) -> bool:
    return any(item.suffix == ".py" or (item.is_dir() and any(item.glob("*.py"))) for item in folder.iterdir())


def _inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())
