"""Whether a project must be built before its code can be imported, and from which files it is built."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from debug_server.runner.environments.build_inputs import is_made
from debug_server.runner.environments.inventory import digest_of
from debug_server.runner.environments.project_files import parse_ini, read_project, read_text, table_at, value_at
from debug_server.runner.environments.setup_files import read_setup_py

_COMPILING_BACKENDS = ("mesonpy", "maturin", "scikit_build_core", "skbuild", "sipbuild", "enscons", "py_build_cmake")
_EXTENSION_KEYWORDS = {"ext_modules", "cffi_modules", "rust_extensions", "cmake_source_dir", "ext_package"}
_EXTENSION_CALL = re.compile(r"\b(?:Extension|cythonize|mypycify|RustExtension|Pybind11Extension|CMakeExtension)\s*\(")
_COMPILED = re.compile(
    r".*\.(?:c|cc|cpp|cxx|h|hh|hpp|hxx|pyx|pxd|pxi|rs|f|for|f90|cu|s|asm|y|l|g4|i|in|tpl)", re.IGNORECASE
)
_MODULE_SOURCE = re.compile(r".*\.(?:pyx|c|cc|cpp|cxx|rs|f90?)")
_BUILD_SCRIPT = re.compile(r"(?:.*_)?(?:build|setup|generate|gen|version|versioneer|configure).*\.py", re.IGNORECASE)
_APART = {"docs", "doc", "tests", "test", "examples", "benchmarks", ".github", ".circleci"}
_TEXTS = (".md", ".rst", ".ipynb", ".png", ".svg", ".jpg", ".gif")


def build_need(folder: Path, *, placed: Mapping[str, str] | None = None) -> str | None:
    """Why the project in ``folder`` must be built; None if its sources are all there is.

    ``placed`` are files that an earlier build made there, with their digests.
    """
    project = read_project(folder)
    made = [name for name in _version_files(folder, project) if not _is_source(folder, name, placed or {})]
    return f"that makes {made[0]}" if made else _compiled(folder, project)


def build_digest(folder: Path, *, placed: Mapping[str, str]) -> str:
    """SHA-256 over the files that a build compiles or reads.

    Plain modules are imported from the sources, so their edits need no build. ``placed`` are files of an earlier build,
    with their digests; they do not count while they are unchanged.
    """
    content = hashlib.sha256()
    if any(_version_files(folder, read_project(folder))):  # made from the history
        content.update(read_text(folder / ".git" / "HEAD").encode())
    for path in sorted(_inputs(folder)):
        digest = digest_of(f"{folder}/{path}")
        if placed.get(path) != digest:
            content.update(f"{path}\0{digest}\0".encode("utf-8", "surrogateescape"))
    return content.hexdigest()


def _version_files(folder: Path, project: dict[str, Any]) -> Iterator[str]:
    """Files with the version that a build writes."""
    call = read_setup_py(folder)
    scm = None if call is None else call.literals.get("use_scm_version")
    named = [value_at(scm, key) for key in ("write_to", "version_file")]
    named += [
        value_at(project, *keys)
        for keys in (
            ("tool", "setuptools_scm", "write_to"),
            ("tool", "setuptools_scm", "version_file"),
            ("tool", "hatch", "build", "hooks", "vcs", "version-file"),
            ("tool", "hatch", "build", "hooks", "version", "path"),
            ("tool", "pdm", "version", "write_to"),
            ("tool", "versioningit", "write", "file"),
        )
    ]
    yield from (name for name in named if isinstance(name, str))


def _is_source(folder: Path, name: str, placed: Mapping[str, str]) -> bool:
    """Whether a file is there that no build of ours has made; pdm counts from its source folder."""
    found = [path for path in (name, f"src/{name}") if (folder / path).exists()]
    return any(placed.get(path) != digest_of(f"{folder}/{path}") for path in found)


def _compiled(folder: Path, project: dict[str, Any]) -> str | None:
    backend = str(value_at(project, "build-system", "build-backend") or "")
    if backend.startswith(_COMPILING_BACKENDS):
        return f"{backend} compiles it"
    if "backend-path" in table_at(project, "build-system") and (source := _compiled_source(folder)) is not None:
        return f"{backend} compiles {source}"
    return _declared(project) or _setup_compiles(folder)


def _declared(project: dict[str, Any]) -> str | None:
    """What pyproject.toml says about modules that are compiled."""
    if table_at(project, "tool", "setuptools").get("ext-modules"):
        return "pyproject.toml has extension modules"
    if isinstance(table_at(project, "tool", "poetry").get("build"), str | dict):
        return "pyproject.toml names a build script"
    if isinstance(table_at(project, "tool", "pdm", "build").get("run-setuptools"), bool):
        return "pdm runs setuptools"
    hatch = table_at(project, "tool", "hatch", "build")
    hooks = {*table_at(hatch, "hooks"), *table_at(hatch, "targets", "wheel", "hooks")} - {"vcs", "version"}
    return f"hatch runs the build hook {min(hooks)!r}" if hooks else None


def _compiled_source(folder: Path) -> str | None:
    """A source of a compiled module, for a build backend of the project's own, which may do anything."""
    found = (path for path in _inputs(folder) if PurePosixPath(path).parts[0] not in _APART)
    return next((path for path in found if _MODULE_SOURCE.fullmatch(path)), None)


def _setup_compiles(folder: Path) -> str | None:
    text = read_text(folder / "setup.py")
    call = read_setup_py(folder)
    keywords = set() if call is None else call.computed | {name for name, value in call.literals.items() if value}
    if keywords & _EXTENSION_KEYWORDS or _EXTENSION_CALL.search(text):
        return "setup.py has extension modules"
    sections = parse_ini(read_text(folder / "setup.cfg")).sections
    return (
        "setup.cfg has extension modules" if any(name.startswith("build_ext") for name in sections) and text else None
    )


def _inputs(folder: Path) -> Iterator[str]:
    for top, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not is_made(name) and not os.path.lexists(f"{top}/{name}/pyvenv.cfg")]
        for name in files:
            path = os.path.relpath(f"{top}/{name}", folder)
            if _is_input(PurePosixPath(path)):
                yield path


def _is_input(path: PurePosixPath) -> bool:
    if is_made(path.name):
        return False
    if _COMPILED.fullmatch(path.name):
        return True
    if path.suffix in (".py", ".pyi"):
        return len(path.parts) == 1 or _BUILD_SCRIPT.fullmatch(path.name) is not None
    return path.parts[0] not in _APART and path.suffix not in _TEXTS and path.suffix not in (".so", ".pyd")
