"""Finds how a project declares what it needs, and what its maintainers would install to test it.

what is installed     pyproject.toml (with uv.lock), else setup.py or setup.cfg, else requirements.txt, else Pipfile,
                      else environment.yml
what tests need       the first of: extras and groups named for tests, requirements files named for tests, tox,
                      environments of hatch named for tests, extras and groups for development, requirements files
                      for development
pytest, its plugins   if there are tests for it
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from debug_server.runner.environments.dependency_groups import (
    declared_extras,
    declared_groups,
    hatch_features,
    poetry_requirements,
)
from debug_server.runner.environments.project_files import (
    names_in,
    parse_ini,
    read_project,
    read_text,
    read_toml,
    table_at,
)
from debug_server.runner.environments.pytest_needs import pytest_needs
from debug_server.runner.environments.requirements import has_hashes
from debug_server.runner.environments.tox_files import tox_dependencies

_TEST_NAME = re.compile(r"(?:unit[-_]?)?tests?(?:ing)?|pytest", re.IGNORECASE)
_DEV_NAME = re.compile(r"dev(?:elop(?:ment|er)?)?", re.IGNORECASE)
_FOLDERS = ("", "requirements", "reqs", "requires", "ci", "tests", "test")
_SKIPPED = {"node_modules", "docs", "doc", "examples", "example", "build", "dist", "vendor", "third_party"}
_MOST_PROJECTS = 20
OTHERS = {
    "package.json": "a Node project: begin with `npm ci`",
    "Cargo.toml": "a Rust project: `cargo test` builds it",
    "go.mod": "a Go project: `go test ./...` builds it",
    "CMakeLists.txt": "built with CMake: `cmake -B build && cmake --build build`",
    "pixi.toml": "a pixi project: `pixi workspace export conda-environment environment.yml` writes a file that is read",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What an environment is made from, and why."""

    manifests: tuple[str, ...] = ()  # relative to the root
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()  # requirements that no manifest lists
    reasons: tuple[str, ...] = ()  # a phrase for each choice
    notes: tuple[str, ...] = ()  # what was recognised, but nothing is installed for

    def __bool__(self) -> bool:
        return bool(self.manifests or self.packages)

    def describe(self) -> str:
        """The choice in one line."""
        return "; ".join(self.reasons or self.notes) or "no project was found"

    def with_test_tools(self, root: Path) -> Detection:
        """The same with pytest, if the tests are for it."""
        if self.manifests and any(has_hashes(read_text(root / name)) for name in self.manifests):
            return self  # a requirement without a hash would be refused
        needs = pytest_needs(root)
        if needs is None or _is_conda(self.manifests):
            return self
        return replace(
            self, packages=(*self.packages, *needs.packages), reasons=(*self.reasons, f"pytest for {needs.evidence}")
        )


def detect_project(root: Path) -> Detection:
    """What to install for the tests of the project in ``root``; empty if nothing is declared there."""
    found = _declared(root)
    if not found:
        inner = _inner_projects(root)
        if len(inner) == 1:
            return _below(_declared(root / inner[0]).with_test_tools(root / inner[0]), inner[0])
        if inner:
            names = ", ".join(f"{name}/{_main(root / name)}" for name in inner)
            return Detection(notes=(f"several projects: choose with --manifest from {names}", *_others(root)))
    found = found.with_test_tools(root)
    return replace(found, notes=tuple(_others(root)))


def _declared(root: Path) -> Detection:
    """What is declared in one folder."""
    main = _main(root)
    if main is None:
        return _requirements(root) or _pipfile(root) or _conda(root)
    lock = " with uv.lock" if main == "pyproject.toml" and (root / "uv.lock").is_file() else ""
    found = Detection(manifests=(main,), reasons=(f"{main}{lock}",))
    for_tests = _for_tests(root)
    if not for_tests and (root / "requirements.txt").is_file():
        for_tests = Detection(manifests=("requirements.txt",), reasons=("requirements.txt",))
    return _joined(found, for_tests)


def _main(root: Path) -> str | None:
    """The file that declares the project itself."""
    project = read_project(root)
    has_setup = (root / "setup.py").is_file()
    config = parse_ini(read_text(root / "setup.cfg")).sections
    is_setuptools = has_setup or "options" in config or "name" in config.get("metadata", {})
    if "project" in project or table_at(project, "tool", "poetry") or table_at(project, "tool", "flit", "metadata"):
        return "pyproject.toml"
    if is_setuptools and "build-system" in project:
        return "pyproject.toml"
    if has_setup:
        return "setup.py"
    return "setup.cfg" if is_setuptools else None


def _for_tests(root: Path) -> Detection:
    """The first thing that names what tests need."""
    return (
        _named(root, _TEST_NAME, "tests")
        or _requirements_named(root, _TEST_NAME)
        or _tox(root)
        or _hatch(root)
        or _named(root, _DEV_NAME, "development")
        or _requirements_named(root, _DEV_NAME)
    )


def _named(root: Path, names: re.Pattern[str], purpose: str) -> Detection:
    extras = [name for name in declared_extras(root) if names.fullmatch(name)]
    groups = [name for name in declared_groups(root) if names.fullmatch(name)]
    if not (extras or groups):
        return Detection()
    said = [f"extra {name!r}" for name in extras] + [f"group {name!r}" for name in groups]
    return Detection(
        manifests=(_main(root) or "pyproject.toml",),
        extras=tuple(extras),
        groups=tuple(groups),
        reasons=(f"{' and '.join(said)}, named for {purpose}",),
    )


def _requirements_named(root: Path, names: re.Pattern[str]) -> Detection:
    found = [path for folder in _FOLDERS for path in _named_files(root, folder, names)]
    return Detection(manifests=tuple(found), reasons=(", ".join(found),)) if found else Detection()


def _named_files(root: Path, folder: str, names: re.Pattern[str]) -> Iterator[str]:
    """``requirements-test.txt``, ``dev_requirements.txt``; in their own folders ``requirements/test.txt``."""
    own = folder in ("requirements", "reqs", "requires")
    of_tests = folder in ("tests", "test") and names is _TEST_NAME
    for name in fnmatch.filter(names_in(root / folder), "*.txt"):
        parts = re.split(r"[-_.]", name.removesuffix(".txt"))
        words = [word for word in parts if word not in ("requirements", "reqs", "requires")]
        listed = own or len(words) < len(parts)
        if listed and (all(names.fullmatch(word) for word in words) and (words or of_tests)):
            yield f"{folder}/{name}".lstrip("/")


def _tox(root: Path) -> Detection:
    found = tox_dependencies(root)
    if found is None:
        return Detection()
    files = [name for name in found.files if (root / name).is_file()]
    said = [*found.packages, *files, *(f"extra {name!r}" for name in found.extras)]
    said += [f"group {name!r}" for name in found.groups]
    return Detection(
        manifests=(*_main_if(root, wanted=bool(found.extras or found.groups)), *files),
        packages=found.packages,
        extras=found.extras,
        groups=found.groups,
        reasons=(f"{_short(said)} for tests by {found.file}",),
    )


def _main_if(root: Path, *, wanted: bool) -> list[str]:
    main = _main(root)
    return [main] if wanted and main is not None else []


def _hatch(root: Path) -> Detection:
    names = [name for name in declared_groups(root) if name.startswith("hatch:")]
    named = [name for name in names if _TEST_NAME.fullmatch(name.removeprefix("hatch:").removeprefix("hatch-"))]
    chosen = named or [name for name in names if name == "hatch:default"]
    if not chosen:
        return Detection()
    return Detection(
        manifests=("pyproject.toml",),
        groups=tuple(chosen),
        extras=tuple(extra for name in chosen for extra in hatch_features(root, name.removeprefix("hatch:"))),
        reasons=(", ".join(f"the environment {name.removeprefix('hatch:')!r} of hatch" for name in chosen),),
    )


def _requirements(root: Path) -> Detection:
    plain = [name for name in ("requirements.txt", "requirements/base.txt") if (root / name).is_file()][:1]
    named = _requirements_named(root, _TEST_NAME) or _requirements_named(root, _DEV_NAME)
    names = (*plain, *named.manifests)
    return Detection(manifests=names, reasons=(", ".join(names),)) if names else Detection()


def _pipfile(root: Path) -> Detection:
    content = read_toml(root / "Pipfile")
    packages = [
        text for section in ("packages", "dev-packages") for text in poetry_requirements(table_at(content, section))
    ]
    return Detection(packages=tuple(packages), reasons=("Pipfile with its dev-packages",)) if packages else Detection()


def _conda(root: Path) -> Detection:
    for name in ("environment.yml", "environment.yaml"):
        if "dependencies" in read_text(root / name):
            return Detection(manifests=(name,), reasons=(name,))
    return Detection()


def _is_conda(manifests: tuple[str, ...]) -> bool:
    return any(name.endswith((".yml", ".yaml")) for name in manifests)


def _joined(one: Detection, other: Detection) -> Detection:
    return Detection(
        manifests=tuple(dict.fromkeys([*one.manifests, *other.manifests])),
        extras=(*one.extras, *other.extras),
        groups=(*one.groups, *other.groups),
        packages=(*one.packages, *other.packages),
        reasons=(*one.reasons, *other.reasons),
    )


def _below(found: Detection, folder: str) -> Detection:
    return replace(
        found,
        manifests=tuple(f"{folder}/{name}" for name in found.manifests),
        reasons=(f"in {folder}: {found.reasons[0]}", *found.reasons[1:]) if found.reasons else (),
    )


def _inner_projects(root: Path) -> list[str]:
    """The folders in the root, and in their folders, that declare a project."""
    found: list[str] = []
    for pattern in ("*/", "*/*/"):
        for folder in sorted(root.glob(pattern)):
            parts = folder.relative_to(root).parts
            if any(part.startswith(".") or part in _SKIPPED for part in parts) or folder.is_symlink():
                continue
            if _main(folder) is not None and not any(Path(*parts).is_relative_to(other) for other in found):
                found.append("/".join(parts))
            if len(found) > _MOST_PROJECTS:
                return found
    return found


def _others(root: Path) -> Iterator[str]:
    yield from (f"{name}: {what}" for name, what in OTHERS.items() if (root / name).is_file())


def _short(items: list[str]) -> str:
    shown = ", ".join(items[:6])
    return f"{shown} and {len(items) - 6} more" if len(items) > 6 else shown
