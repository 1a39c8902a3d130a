"""Builds with uv: requirements files, project files, and ``uv.lock`` with ``uv sync --frozen``."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.build_plan import BuildPlan
from debug_server.runner.environments.manifests import ManifestKind
from debug_server.runner.environments.package_index import (
    HINT,
    chosen_sources,
    settings_variables,
    uv_variables,
)
from debug_server.runner.environments.project_copy import safe_project_folder
from debug_server.runner.environments.requirements import without_local_projects
from debug_server.runner.environments.tool_caches import close_cache

_SOURCES = (ManifestKind.REQUIREMENTS, ManifestKind.PROJECT)


@cache
def find_uv() -> str | None:
    """The path of uv: from the uv package, else from PATH."""
    try:
        import uv

        return os.fspath(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        return shutil.which("uv")


@dataclass(frozen=True, slots=True, kw_only=True)
class UvBuilder:
    """uv, by the path of its program."""

    program: str
    tool: str
    name: ClassVar[str] = "uv"
    brings_python: ClassVar[bool] = False
    keeps_records: ClassVar[bool] = True

    def build(self, plan: BuildPlan, context: BuildContext) -> None:
        """A virtual environment with what the manifests list, and never the project itself."""
        close_cache("uv", "UV_CACHE_DIR")
        with safe_project_folder(plan, context) as moved:
            self._build(moved, context)

    def _build(self, plan: BuildPlan, context: BuildContext) -> None:
        locks = plan.manifests.of(ManifestKind.UV_LOCK)
        for lock in locks:
            self._sync(plan, context, lock.parent)
        if not locks:
            self._run(context, ["venv", "--no-project", "--python", plan.interpreter.path, str(context.target)], plan)
        locked = {lock.parent for lock in locks}
        sources = [path for path in plan.manifests.of(*_SOURCES) if path.parent not in locked or path.suffix == ".txt"]
        if sources:
            self._install(plan, context, sources)
        if plan.request.packages and (plan.manifests.hashed or not sources):
            self._install_packages(plan, context)

    def sources(self) -> str:
        """The indexes that are configured on this machine."""
        return chosen_sources(os.environ, prefix=Path(sys.prefix))

    def drop_from_cache(self, packages: list[str], context: BuildContext) -> None:
        """Remove these packages from uv's cache: installed files are hard links to it."""
        folder = context.target.parent
        settings = settings_variables(os.environ, folder, folder)
        context.run([self.program, "cache", "clean", *packages], cwd=folder, env=settings)

    def install_into(
        self, plan: BuildPlan, python: Path, arguments: list[str], context: BuildContext, cwd: Path
    ) -> None:
        """``uv pip install`` into an environment that exists."""
        argv = [self.program, "pip", "install", "--python", str(python), *arguments]
        context.run(argv, cwd=cwd, env=_variables(context, plan, cwd), hint=HINT)

    def _sync(self, plan: BuildPlan, context: BuildContext, folder: Path) -> None:
        # No local packages: the environment is shared with workspaces that have other versions of them.
        argv = ["sync", "--frozen", "--no-install-project", "--no-install-workspace", "--no-install-local"]
        argv += ["--no-editable", "--inexact", "--python", plan.interpreter.path]
        argv += [word for group in plan.request.groups for word in ("--group", group)]
        argv += [word for extra in plan.request.extras for word in ("--extra", extra)]
        variables = {**_variables(context, plan, folder), "UV_PROJECT_ENVIRONMENT": str(context.target)}
        context.run([self.program, *argv], cwd=folder, env=variables, hint=HINT)

    def _install_packages(self, plan: BuildPlan, context: BuildContext) -> None:
        """Further packages, after those that a lock or hashes fix."""
        with _listed(plan, context) as arguments:
            self.install_into(plan, context.target / "bin" / "python", arguments, context, plan.manifests.root)

    def _install(self, plan: BuildPlan, context: BuildContext, sources: list[Path]) -> None:
        with _listed(plan, context) as packages:
            further = [] if plan.manifests.hashed else packages
            self._install_sources(plan, context, [*_source_arguments(plan, sources), *further])

    def _install_sources(self, plan: BuildPlan, context: BuildContext, arguments: list[str]) -> None:
        python = context.target / "bin" / "python"
        if not plan.manifests.local_projects:
            self.install_into(plan, python, arguments, context, plan.manifests.root)
            return
        pins = context.target / ".requirements.txt"
        compile_ = ["pip", "compile", "--quiet", "--python", str(python), "--no-header", "--no-annotate"]
        compile_ += ["--emit-index-url", "--emit-find-links", "--output-file", str(pins)]
        self._run(context, [*compile_, *(word for word in arguments if word != "-r")], plan)
        try:
            text = pins.read_text("utf-8")
            pins.write_text(without_local_projects(text, plan.manifests.root), "utf-8")
            self.install_into(plan, python, ["-r", str(pins)], context, plan.manifests.root)
        finally:
            pins.unlink()

    def _run(self, context: BuildContext, argv: list[str], plan: BuildPlan) -> None:
        hint = "" if argv[0] == "venv" else HINT
        root = plan.manifests.root
        context.run([self.program, *argv], cwd=root, env=_variables(context, plan, root), hint=hint)


@contextlib.contextmanager
def _listed(plan: BuildPlan, context: BuildContext) -> Iterator[list[str]]:
    """The packages of the request in a file, as arguments; none if there are none."""
    if not plan.request.packages:
        yield []
        return
    path = context.target / ".packages.txt"
    path.write_text("".join(f"{line}\n" for line in plan.request.packages), "utf-8")
    try:
        yield ["-r", str(path)]
    finally:
        path.unlink()


def _source_arguments(plan: BuildPlan, sources: list[Path]) -> list[str]:
    arguments = [word for path in sources for word in ("-r", str(path))]
    arguments += [word for path in plan.manifests.of(ManifestKind.CONSTRAINTS) for word in ("-c", str(path))]
    if projects := [path for path in sources if path in plan.manifests.of(ManifestKind.PROJECT)]:
        arguments += [word for extra in plan.request.extras for word in ("--extra", extra)]
        arguments += [word for group in plan.request.groups for word in ("--group", f"{projects[0]}:{group}")]
    elif plan.manifests.hashed:
        arguments.append("--require-hashes")
    return arguments


def _variables(context: BuildContext, plan: BuildPlan, cwd: Path) -> Mapping[str, str]:
    variables = uv_build_variables(plan.manifests.root, cwd)
    if plan.manifests.own_index:
        variables.pop("UV_DEFAULT_INDEX", None)
    return {**variables, **({"UV_NO_CACHE": "1"} if context.bypass_cache else {})}


def uv_build_variables(root: Path, cwd: Path) -> dict[str, str]:
    """The variables of uv for the project ``root``, started in ``cwd``."""
    return {
        **uv_variables(os.environ, prefix=Path(sys.prefix)),
        **settings_variables(os.environ, cwd, root),
        # An installed interpreter is always named, so uv must never download one.
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": os.environ.get("UV_LINK_MODE", "hardlink"),
        "UV_NO_PROGRESS": "1",
        # For build backends that take a version from git.
        "GIT_CEILING_DIRECTORIES": str(root.parent),
    }
