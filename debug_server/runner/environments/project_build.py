"""Builds the project under test for one workspace: compiled modules, generated files, metadata and scripts.

    digest of what a build reads, environment -> key -> built already? -> placed into the workspace
                                                     -> uv builds a copy of the workspace -> .builds/<key>/

The code itself is imported from the workspace's sources, so an edit of a module needs no build. Files that only a build
makes are copied beside the sources; nothing of one workspace is on the path of another.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from debug_server.disk import Folder, make_private, open_folder, remove_tree, write_draft
from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.inventory import digest_of
from debug_server.runner.environments.layout import Layout, key_of
from debug_server.runner.environments.project_copy import copy_whole
from debug_server.runner.environments.project_files import read_text
from debug_server.runner.environments.uv_builder import find_uv, uv_build_variables

_DONE = "done"
_MOST_EXCLUDES = 1 << 20  # bytes of the list of excluded files


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectBuild:
    """The result of one build, which workspaces with the same inputs share."""

    folder: Path

    @property
    def site(self) -> Path:
        """Metadata, scripts in ``bin``, and modules that have no place in the sources; for PYTHONPATH."""
        return self.folder / "site"

    @property
    def placed(self) -> Path:
        """What is copied beside the sources."""
        return self.folder / "placed"

    @property
    def is_complete(self) -> bool:
        """Whether the build has ended well."""
        return (self.folder / _DONE).exists()


def build_key(fingerprint: str, digest: str) -> str:
    """The key of a build: the environment, and what is built."""
    return key_of(hashlib.sha256(f"{fingerprint} {digest}".encode()).hexdigest())


def run_build(
    found: ProjectBuild,
    project: Path,
    roots: list[Path],
    *,
    python: Path,
    placed: Mapping[str, str],
    context: BuildContext,
) -> None:
    """Build a copy of ``project`` into ``found``, whose lock the caller holds; without what was ``placed`` before."""
    if (uv := find_uv()) is None:
        raise EnvironmentBuildError("the project must be built, which needs uv: install the uv package")
    remove_tree(found.folder)
    make_private(found.folder)
    home = context.temporary.with_name(f"{context.temporary.name}.project")
    remove_tree(home)  # a killed builder's
    make_private(home)
    try:
        (home / "pyproject.toml").touch(mode=0o600)  # ends uv's search for a workspace above the copy
        copy = home / secrets.token_hex(4) / project.name  # a new name: uv knows nothing about it yet
        copy.parent.mkdir()
        copy_whole(project, copy, context)
        for path, digest in placed.items():
            if digest_of(str(copy / path)) == digest:
                (copy / path).unlink()
        sources = {path.relative_to(copy) for path in _files(copy)}
        target = found.folder / "built"
        argv = [uv, "pip", "install", "--no-deps", "--python", str(python), "--target", str(target), str(copy)]
        variables = {**uv_build_variables(copy, copy), **_pretended_version(project)}
        context.run(argv, cwd=copy, env=variables, hint="this is the build of the project itself")
        _sort(target, found, sources, [root.relative_to(project) for root in roots])
        (found.folder / _DONE).touch()
    finally:
        remove_tree(home)


def place(found: ProjectBuild, project: Path, record: Path, *, workspace: Path) -> None:
    """Copy what the build has made beside the sources of ``project``, and note it in ``record``.

    Commands of the workspace can put links there at any time: none is followed.
    """
    noted = {}
    try:
        with open_folder(project) as folder:
            for source in _files(found.placed):
                path = source.relative_to(found.placed).as_posix()
                noted[path] = digest_of(str(source))
                _place_file(folder, path, source)
        if noted:
            prefix = project.relative_to(workspace)
            _exclude(workspace, [(prefix / path).as_posix() for path in noted])
    except OSError as error:
        message = f"a built file cannot be placed in the workspace ({error.filename}: {error.strerror})"
        raise EnvironmentBuildError(f"{message}: no part of its path may be a link") from error
    record.parent.mkdir(exist_ok=True)
    draft = record.with_name(f"{record.name}.{secrets.token_hex(4)}")
    draft.write_text(json.dumps(noted), "utf-8")
    draft.replace(record)


def _place_file(folder: Folder, path: str, source: Path) -> None:
    parent, name = str(PurePosixPath(path).parent), PurePosixPath(path).name
    data = source.read_bytes()
    with suppress(OSError):
        if folder.read(path, len(data) + 1) == data:
            return
    with _made_below(folder, parent) as inner, write_draft(inner.descriptor, name, replace=True) as file:
        file.write(data)
        os.fchmod(file.fileno(), source.stat().st_mode & 0o777)


@contextmanager
def _made_below(folder: Folder, path: str) -> Iterator[Folder]:
    """A folder below another one, made if it is missing."""
    with ExitStack() as stack:
        for part in PurePosixPath(path).parts:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder.descriptor)
            folder = stack.enter_context(folder.below(part))
        with folder.below(".") as found:  # a descriptor that can be written to
            yield found


def _exclude(workspace: Path, paths: list[str]) -> None:
    """Name the files in the workspace's ``.git/info/exclude``, so that neither git nor a session's diff shows them."""
    if not (workspace / ".git").is_dir():  # a working tree of git's own, whose list all trees share
        return
    with open_folder(workspace) as folder, _made_below(folder, ".git/info") as info:
        known = b""
        with suppress(FileNotFoundError):
            known = info.read("exclude", _MOST_EXCLUDES)
        lines = [b"/" + re.sub(rb"([\\*?\[ !#])", rb"\\\1", os.fsencode(path)) for path in paths]
        if new := [line for line in lines if line not in known.splitlines()]:
            with write_draft(info.descriptor, "exclude", replace=True) as file:
                file.write(b"\n".join([*known.splitlines(), *new, b""]))


def placed_before(record: Path) -> dict[str, str]:
    """What ``place`` has noted for a workspace."""
    try:
        found = json.loads(record.read_bytes())
        return {str(path): str(digest) for path, digest in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def record_of(layout: Layout, project: Path) -> Path:
    """Where it is noted what was placed into a workspace's project."""
    return layout.builds / f"placed-{hashlib.sha256(str(project).encode()).hexdigest()[:20]}.json"


def _sort(built: Path, found: ProjectBuild, sources: set[Path], roots: list[Path]) -> None:
    """What the sources have is dropped; what belongs beside them is placed; the rest is for the path."""
    found.site.mkdir()
    found.placed.mkdir()
    packages = {path.parent for path in sources}
    for source in list(_files(built)):
        path = source.relative_to(built)
        place = _place_of(path, roots, packages)
        if place in sources:
            continue
        target = found.site / path if place is None else found.placed / place
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
    remove_tree(built)


def _place_of(path: Path, roots: list[Path], packages: set[Path]) -> Path | None:
    """Where a built file belongs among the sources: in the import root that has its package."""
    top = path.parts[0]
    if top == "bin" or top.endswith((".dist-info", ".data")) or not roots:
        return None
    if len(path.parts) == 1:  # a module of its own
        return roots[0] / path
    return next((root / path for root in roots if root / top in packages), None)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def _pretended_version(project: Path) -> dict[str, str]:
    """For tools that take the version from tags: that of a source distribution, which has none."""
    match = re.search(r"(?m)^Version: (\S+)$", read_text(project / "PKG-INFO").split("\n\n")[0])
    if match is None:
        return {}
    return {"SETUPTOOLS_SCM_PRETEND_VERSION": match[1], "PDM_BUILD_SCM_VERSION": match[1], "PBR_VERSION": match[1]}
