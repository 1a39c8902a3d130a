"""The files from which a build of a project takes its requirements: what an environment's fingerprint must cover."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.runner.environments.inventory import digest_of
from debug_server.runner.environments.project_files import read_ini, read_project, table_at, texts_of
from debug_server.runner.environments.setup_files import read_setup_py

_DYNAMIC = {"dependencies", "optional-dependencies"}
_REQUIREMENTS = {"install_requires", "extras_require"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Whoever builds with other packages may have a plugin that adds requirements from files of its own.
_HARMLESS = {
    "setuptools",
    "wheel",
    "setuptools-scm",
    "cython",
    "numpy",
    "oldest-supported-numpy",
    "pybind11",
    "cffi",
    "packaging",
    "tomli",
    "versioneer",
    "setuptools-rust",
    "poetry-core",
    "flit-core",
    "flit",
}
# Made by tools and commands beside the sources; none of them is a source.
_MADE = re.compile(r"\.git|__pycache__|.*\.egg-info|\.(?:pytest|mypy|ruff)_cache|\.hypothesis|\.tox|\.nox|node_modules")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInputs:
    """What a project's requirements depend on, beside its pyproject.toml, setup.py and setup.cfg."""

    files: tuple[str, ...] = ()  # below the project's folder
    everything: bool = False  # only running the build would tell: any file of the tree may count


def build_inputs(folder: Path) -> BuildInputs:
    """What the requirements of the project in ``folder`` depend on."""
    project = read_project(folder)
    table = table_at(project, "project")
    if table and not _DYNAMIC & set(texts_of(table.get("dynamic"))):
        return BuildInputs()
    system = table_at(project, "build-system")
    backend = system.get("build-backend", "setuptools.build_meta")
    tools = {_canonical(item) for item in texts_of(system.get("requires"))}
    if "backend-path" in system or not isinstance(backend, str) or not tools <= _HARMLESS:
        return BuildInputs(everything=True)
    if backend.startswith("setuptools."):
        return _setuptools_inputs(folder, project)
    # Poetry and flit write everything into pyproject.toml; others compute what they call dynamic.
    return BuildInputs(everything=not backend.startswith(("poetry.", "flit")))


def tree_digest(root: Path) -> str:
    """SHA-256 over the names and contents of all files below ``root``, without what tools make there."""
    content = hashlib.sha256()
    for path in sorted(_files(root)):
        full = f"{root}/{path}"
        is_link = os.path.islink(full)  # noqa: PTH114  (text paths: thousands of them)
        what = os.readlink(full) if is_link else digest_of(full)  # noqa: PTH115
        content.update(f"{path}\0{is_link}\0{what}\0".encode("utf-8", "surrogateescape"))
    return content.hexdigest()


def is_made(name: str) -> bool:
    """Whether tools make files and folders of this name, which are no sources."""
    return _MADE.fullmatch(name) is not None


def _files(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
        folders[:] = [name for name in folders if not is_made(name) and not _is_environment(f"{folder}/{name}")]
        for name in (*files, *links):
            if not is_made(name):
                yield os.path.relpath(f"{folder}/{name}", root)


def _is_environment(folder: str) -> bool:
    return os.path.lexists(f"{folder}/pyvenv.cfg")


def _setuptools_inputs(folder: Path, project: dict[str, Any]) -> BuildInputs:
    config = read_ini(folder / "setup.cfg")
    dynamic = table_at(project, "tool", "setuptools", "dynamic")
    declared = [dynamic.get("dependencies"), *table_at(dynamic, "optional-dependencies").values()]
    names = [name for part in declared if isinstance(part, dict) for name in texts_of(part.get("file"))]
    values = [config.text("options", "install_requires"), *config.sections.get("options.extras_require", {}).values()]
    for value in values:
        if value.strip().startswith("file:"):
            names += [name.strip() for name in re.split(r"[,\n]", value.strip().removeprefix("file:")) if name.strip()]
    return BuildInputs(
        files=tuple(dict.fromkeys(names)), everything=_is_computed(folder) or _has_plugins(config.sections)
    )


def _is_computed(folder: Path) -> bool:
    """Whether the requirements in a setup.py are known only when it is run."""
    if not (folder / "setup.py").is_file():
        return False
    call = read_setup_py(folder)
    if call is None or call.computed & {"**", *_REQUIREMENTS}:
        return True
    return bool({"setup_requires", "pbr"} & (call.computed | call.literals.keys()))


def _has_plugins(sections: dict[str, dict[str, str]]) -> bool:
    return "setup_requires" in sections.get("options", {}) or "pbr" in sections


def _canonical(requirement: str) -> str:
    match = _NAME.match(requirement.strip())
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else requirement
