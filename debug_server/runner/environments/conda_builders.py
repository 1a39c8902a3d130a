"""Builds conda environments: with py-rattler in this process, or with an installed conda program."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from debug_server.disk import remove_tree
from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.build_plan import BuildPlan
from debug_server.runner.environments.conda_manifest import parse_environment, parse_explicit
from debug_server.runner.environments.manifests import ManifestKind
from debug_server.runner.environments.project_copy import safe_project_folder
from debug_server.runner.environments.tool_caches import close_cache
from debug_server.runner.environments.uv_builder import UvBuilder

if TYPE_CHECKING:
    from rattler import RepoDataRecord

_PACKAGE_URL = re.compile(
    r"(?P<url>(?P<channel>.+)/(?P<subdir>[^/]+)/(?P<file>(?P<name>[^/]+)-(?P<version>[^/-]+)-(?P<build>[^/-]+)"
    r"(?:\.conda|\.tar\.bz2)))(?:#(?P<kind>sha256:)?(?P<hash>[0-9a-fA-F]+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RattlerBuilder:
    """The py-rattler library."""

    tool: str
    uv: UvBuilder | None  # for the pip section of an environment.yml
    name: ClassVar[str] = "rattler"
    brings_python: ClassVar[bool] = True
    keeps_records: ClassVar[bool] = False  # conda rewrites files after their RECORD was written

    def build(self, plan: BuildPlan, context: BuildContext) -> None:
        """Solve, download and link."""
        import rattler.exceptions as foreign

        close_cache("rattler", "RATTLER_CACHE_DIR")
        failures = (
            foreign.SolverError,
            foreign.GatewayError,
            foreign.InstallerError,
            foreign.LinkError,
            foreign.TransactionError,
            foreign.FetchRepoDataError,
            foreign.CacheDirError,
            foreign.ExtractError,
            foreign.IoError,
            foreign.InvalidMatchSpecError,
            foreign.InvalidChannelError,
            foreign.InvalidUrlError,
            foreign.InvalidVersionError,
            foreign.InvalidPackageNameError,
            foreign.DetectVirtualPackageError,
        )
        try:
            asyncio.run(asyncio.wait_for(_cancellable(_install(plan, context), context), context.remaining()))
        except failures as error:
            raise EnvironmentBuildError(f"py-rattler could not build the environment: {error}") from error
        except TimeoutError as error:
            raise EnvironmentBuildError("py-rattler did not end before the deadline: allow more build time") from error
        _install_pip_section(plan, context, self.uv)

    def sources(self) -> str:
        """Not known: the tool's own settings choose."""
        return ""

    def drop_from_cache(self, packages: list[str], context: BuildContext) -> None:
        """Remove the unpacked packages from rattler's cache."""
        for package in packages:
            for folder in (_rattler_cache() / "pkgs").glob(f"{package.replace('==', '-')}-*"):
                remove_tree(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class CondaProgramBuilder:
    """micromamba, mamba or conda, by the path of the program."""

    name: str
    program: str
    tool: str
    brings_python: ClassVar[bool] = True
    keeps_records: ClassVar[bool] = False

    def build(self, plan: BuildPlan, context: BuildContext) -> None:
        """``create`` with the manifest; the program installs a pip section by itself."""
        explicit = plan.manifests.of(ManifestKind.CONDA_EXPLICIT)
        create = ["create"] if explicit or self.name == "micromamba" else ["env", "create"]
        argv = [self.program, *create, "--yes", "--prefix", str(context.target)]
        for path in explicit or plan.manifests.of(ManifestKind.CONDA):
            argv += ["--file", str(path)]
        if not explicit and (python := _python_spec(plan)):
            argv.append(python)
        context.run(argv, cwd=plan.manifests.root)

    def sources(self) -> str:
        """Not known: the tool's own settings choose."""
        return ""

    def drop_from_cache(self, packages: list[str], context: BuildContext) -> None:
        """Remove the unpacked packages from the program's cache."""
        context.run([self.program, "clean", "--packages", "--yes"], cwd=context.target.parent)


async def _cancellable(work: Coroutine[Any, Any, None], context: BuildContext) -> None:
    """Await ``work``; when the command is cancelled, stop waiting and raise StartCancelledError.

    Downloads, and a solver that waits for them, end at once. A step that the library runs in its own thread (solving,
    linking a package) continues to its end, in a folder that is no longer used.
    """
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()

    def leave() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(task.cancel)

    with context.cancellation.on_request(leave):
        try:
            await task
        except asyncio.CancelledError:
            context.cancellation.check()
            raise


async def _install(plan: BuildPlan, context: BuildContext) -> None:
    import rattler

    explicit = plan.manifests.of(ManifestKind.CONDA_EXPLICIT)
    if explicit:
        records = [_record(url) for path in explicit for url in parse_explicit(_text(path))]
    else:
        records = await _solve(plan, context)
    for record in sorted(records, key=lambda item: item.name.normalized):
        context.write_line(f" + {record.name.normalized} {record.version} {record.build}")
    await rattler.install(records, target_prefix=context.target, show_progress=False)


async def _solve(plan: BuildPlan, context: BuildContext) -> list[RepoDataRecord]:
    import rattler

    wanted = [parse_environment(_text(path)) for path in plan.manifests.of(ManifestKind.CONDA)]
    channels = list(dict.fromkeys(name for item in wanted for name in item.channels))
    specs = [spec for item in wanted for spec in item.specs]
    if python := _python_spec(plan):
        specs.append(python)
    context.write_line(f"solving {len(specs)} specs from {', '.join(channels)}")
    sources = [rattler.Channel(_channel_address(name, plan.manifests.root)) for name in channels]
    virtual = rattler.VirtualPackage.detect()
    return await rattler.solve(sources=sources, specs=specs, virtual_packages=virtual)


def _record(line: str) -> RepoDataRecord:
    import rattler

    match = _PACKAGE_URL.fullmatch(line)
    if match is None:
        raise EnvironmentBuildError(f"explicit package {line!r} is not an address such as …/noarch/name-1.0-0.conda")
    if match["hash"] is None:
        raise EnvironmentBuildError(f"explicit package {line!r} has no #hash: export the list with `--explicit --md5`")
    digest = bytes.fromhex(match["hash"])
    record = rattler.PackageRecord(
        name=match["name"],
        version=match["version"],
        build=rattler.BuildString(match["build"]),
        build_number=0,
        subdir=match["subdir"],
        sha256=digest if match["kind"] else None,
        md5=None if match["kind"] else digest,
    )
    return rattler.RepoDataRecord(record, match["file"], match["url"], match["channel"])


def _install_pip_section(plan: BuildPlan, context: BuildContext, uv: UvBuilder | None) -> None:
    paths = plan.manifests.of(ManifestKind.CONDA)
    lines = [line for path in paths for line in parse_environment(_text(path)).pip]
    if not lines:
        return
    if uv is None or plan.manifests.local_projects:
        raise EnvironmentBuildError("a pip section needs uv, and must not list local projects")
    arguments = [word for line in lines for word in (shlex.split(line) if line.startswith("-") else [line])]
    with safe_project_folder(plan, context) as moved:
        folder = moved.manifests.of(ManifestKind.CONDA)[0].parent
        uv.install_into(moved, context.target / "bin" / "python", arguments, context, folder)


def _python_spec(plan: BuildPlan) -> str | None:
    version = plan.metadata.get("python")
    if version is None:
        return None
    if not re.fullmatch(r"\d+(\.\d+){0,2}", version):
        raise EnvironmentBuildError(f"python {version!r} is not a version such as 3.11 that conda could install")
    return f"python={version}"


def _channel_address(name: str, root: Path) -> str:
    """The address of a channel; a path is resolved against the project root."""
    return (root / name).resolve().as_uri() if name.startswith((".", "/")) else name


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def _rattler_cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("RATTLER_CACHE_DIR") or cache / "rattler" / "cache")
