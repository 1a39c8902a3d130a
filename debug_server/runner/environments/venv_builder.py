"""Builds with the standard library's venv and pip, if uv is not installed."""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.build_plan import BuildPlan
from debug_server.runner.environments.manifests import ManifestKind
from debug_server.runner.environments.package_index import chosen_sources


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvBuilder:
    """``python -m venv`` and the pip it brings."""

    tool: ClassVar[str] = "venv and pip of the interpreter"
    name: ClassVar[str] = "venv"
    brings_python: ClassVar[bool] = False
    keeps_records: ClassVar[bool] = True

    def build(self, plan: BuildPlan, context: BuildContext) -> None:
        """A virtual environment with what requirements and project files list."""
        if locks := plan.manifests.of(ManifestKind.UV_LOCK):
            raise EnvironmentBuildError(f"{str(locks[0])!r} can only be installed by uv: install the uv package")
        if plan.manifests.local_projects:
            raise EnvironmentBuildError(
                "a requirements file names a local project, whose dependencies only uv can find without installing "
                "the project itself: install the uv package, or list the dependencies"
            )
        root = plan.manifests.root
        context.run([plan.interpreter.path, "-I", "-m", "venv", str(context.target)], cwd=root)
        if arguments := [*_arguments(plan), *plan.request.packages]:
            pip = [str(context.target / "bin" / "python"), "-m", "pip", "install", "--no-user"]
            pip += ["--no-input", "--no-compile"]
            pip += ["--no-cache-dir"] if context.bypass_cache else []
            ceiling = {"GIT_CEILING_DIRECTORIES": str(root.parent)}  # for build backends that take a version from git
            context.run([*pip, "--disable-pip-version-check", *arguments], cwd=root, env=ceiling)

    def sources(self) -> str:
        """pip's settings that choose an index."""
        return chosen_sources(os.environ, prefix=Path(sys.prefix))

    def drop_from_cache(self, packages: list[str], context: BuildContext) -> None:
        """Does nothing: pip copies files, so a changed file cannot be in its cache."""


def _arguments(plan: BuildPlan) -> list[str]:
    requirements = plan.manifests.of(ManifestKind.REQUIREMENTS)
    wanted = [word for path in requirements for word in ("-r", str(path))]
    for path in plan.manifests.of(ManifestKind.PROJECT):
        wanted += project_dependencies(path, extras=list(plan.request.extras), groups=list(plan.request.groups))
    if not wanted:
        return []
    return wanted + [word for path in plan.manifests.of(ManifestKind.CONSTRAINTS) for word in ("-c", str(path))]


def project_dependencies(path: Path, *, extras: list[str], groups: list[str]) -> list[str]:
    """What a pyproject.toml lists statically, with these extras and dependency groups."""
    if path.name != "pyproject.toml":
        raise EnvironmentBuildError(f"{str(path)!r} can only be read by uv: install the uv package")
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EnvironmentBuildError(f"{str(path)!r} cannot be read: {error}") from error
    project = data.get("project", {})
    if "dependencies" in project.get("dynamic", []):
        raise EnvironmentBuildError(f"the dependencies of {str(path)!r} are dynamic: install the uv package")
    found = list(project.get("dependencies", []))
    for extra in extras:
        found += _named(project.get("optional-dependencies", {}), extra, f"extra of {str(path)!r}")
    for group in groups:
        found += _group(data.get("dependency-groups", {}), group, path, ())
    return found


def _named(table: dict[str, Any], name: str, what: str) -> list[Any]:
    if name not in table:
        raise EnvironmentBuildError(f"there is no {what} named {name!r}; defined: {', '.join(sorted(table)) or 'none'}")
    return list(table[name])


def _group(table: dict[str, Any], name: str, path: Path, above: tuple[str, ...]) -> list[str]:
    if name in above:
        raise EnvironmentBuildError(f"dependency group {name!r} of {str(path)!r} includes itself")
    found: list[str] = []
    for item in _named(table, name, f"dependency group of {str(path)!r}"):
        if isinstance(item, dict):
            found += _group(table, str(item.get("include-group")), path, (*above, name))
        else:
            found.append(str(item))
    return found
