"""Reads the manifests of an environment: their kinds, the files that they include, and one digest of all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from debug_server.disk import why_distrusted
from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.build_inputs import build_inputs, tree_digest
from debug_server.runner.environments.package_index import names_default_index
from debug_server.runner.environments.request import EnvironmentRequest
from debug_server.runner.environments.requirements import ReferenceKind, has_hashes, has_index, references
from debug_server.worktrees.dependency_state import compute_dependency_hash

_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


class ManifestKind(StrEnum):
    """What a manifest is."""

    REQUIREMENTS = "requirements"  # requirements*.txt, *.in, pylock*.toml
    CONSTRAINTS = "constraints"  # constraints*.txt
    PROJECT = "project"  # pyproject.toml, setup.py, setup.cfg
    UV_LOCK = "uv_lock"
    CONDA = "conda"  # environment.yml
    CONDA_EXPLICIT = "conda_explicit"  # a list of package addresses under @EXPLICIT
    OTHER = "other"  # only a hook can use it


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSet:
    """The manifests of one request, read."""

    root: Path  # nothing that a manifest names may lie outside
    files: dict[ManifestKind, tuple[Path, ...]]
    digest: str  # of the contents of all files, the included ones too
    local_projects: bool  # a requirements file names a folder: only its dependencies are installed
    absolute_projects: bool  # one of those by an absolute path
    hashed: bool  # some requirement carries a hash, so all must
    own_index: bool  # the project names its default index itself
    runs_build: bool  # requirements come from a build that may read files of its own

    def of(self, *kinds: ManifestKind) -> list[Path]:
        """The files of these kinds, in the order given."""
        return [path for kind in kinds for path in self.files.get(kind, ())]

    def all(self) -> list[Path]:
        """Every manifest."""
        return self.of(*ManifestKind)


def read_manifests(request: EnvironmentRequest) -> ManifestSet:
    """Classify the manifests of ``request`` and follow their includes; nothing may leave the project root."""
    paths = [Path(os.path.abspath(path)) for path in request.manifests or ()]  # noqa: PTH100  (keeps symlinks as named)
    root = _project_root(request, paths)
    closure = _IncludeReader(root, "the repository" if request.project_root is not None else str(root))
    files: dict[ManifestKind, tuple[Path, ...]] = {}
    for path in _with_neighbours(paths):
        kind = closure.add(path, label=None)
        files[kind] = (*files.get(kind, ()), path)
    manifests = [path for group in files.values() for path in group]
    return ManifestSet(
        root=root,
        files=files,
        digest=compute_dependency_hash(manifests, extra_inputs=closure.included),
        local_projects=closure.local_projects,
        absolute_projects=closure.absolute_projects,
        hashed=closure.hashed,
        own_index=closure.own_index or names_default_index(root),
        runs_build=closure.runs_build,
    )


def _project_root(request: EnvironmentRequest, paths: Sequence[Path]) -> Path:
    if request.project_root is not None:
        return Path(request.project_root).resolve()
    if not paths:
        return Path.cwd()
    common = Path(os.path.commonpath([path.parent for path in paths])).resolve()
    above = (folder for folder in (common, *common.parents) if (folder / ".git").exists())
    # A .git of another user would widen the root to a folder that this other user can write to.
    return next((folder for folder in above if why_distrusted(folder / ".git") is None), common)


def _with_neighbours(paths: Iterable[Path]) -> list[Path]:
    """Add the ``uv.lock`` beside a ``pyproject.toml``, and the reverse."""
    found: dict[Path, None] = {}
    for path in paths:
        found[path] = None
        if path.name == "pyproject.toml" and (lock := path.with_name("uv.lock")).is_file():
            found[lock] = None
        if path.name == "uv.lock":
            found[path.with_name("pyproject.toml")] = None
    return list(found)


def _kind_of(path: Path, text: str) -> ManifestKind:
    name = path.name.lower()
    kind = ManifestKind.OTHER
    if name == "uv.lock":
        kind = ManifestKind.UV_LOCK
    elif name in _PROJECT_FILES:
        kind = ManifestKind.PROJECT
    elif name.startswith("pylock") and name.endswith(".toml"):
        kind = ManifestKind.REQUIREMENTS
    elif "@EXPLICIT" in text[:4096]:
        kind = ManifestKind.CONDA_EXPLICIT
    elif name.endswith((".yml", ".yaml")) and "dependencies" in text:
        kind = ManifestKind.CONDA
    elif name.endswith((".txt", ".in")):
        kind = ManifestKind.CONSTRAINTS if name.startswith("constraint") else ManifestKind.REQUIREMENTS
    return kind


class _IncludeReader:
    """Reads manifests and their includes, each once, and collects the facts of ``ManifestSet``."""

    def __init__(self, root: Path, place: str) -> None:
        """``place`` names the root in errors."""
        self._root, self._place = root, place
        self._seen: set[Path] = set()
        self.included: dict[str, str] = {}  # path under the root -> digest
        self.local_projects = False
        self.absolute_projects = False
        self.hashed = False
        self.own_index = False
        self.runs_build = False

    def add(self, path: Path, *, label: str | None) -> ManifestKind:
        data = self._read(self._contained(path, "manifest"))
        text = data.decode("utf-8", "replace")
        kind = _kind_of(path, text)
        if path in self._seen:
            return kind
        self._seen.add(path)
        if label is not None:
            self.included[label] = hashlib.sha256(data).hexdigest()
        if kind in (ManifestKind.REQUIREMENTS, ManifestKind.CONSTRAINTS) and path.suffix != ".toml":
            self.hashed = self.hashed or has_hashes(text)
            self.own_index = self.own_index or has_index(text)
            self._follow(path, text)
        elif kind is ManifestKind.CONDA:
            self._follow(path, "\n".join(_pip_lines(text)))
        elif kind is ManifestKind.PROJECT:
            self._add_project(path.parent)
        return kind

    def _follow(self, path: Path, text: str) -> None:
        for found in references(text):
            if "://" in found.target:
                raise EnvironmentBuildError(
                    f"{path.name} includes {found.target!r}: only files of the project can be included, "
                    "because the content of a URL can change without notice"
                )
            if found.kind is ReferenceKind.INCLUDE:
                self._include(path.parent / found.target)
            else:
                self._add_local(found.target)

    def _include(self, path: Path) -> None:
        path = Path(os.path.abspath(path))  # noqa: PTH100  (keeps symlinks as named)
        self.add(path, label=os.path.relpath(self._contained(path, "included file"), self._root))

    def _add_local(self, target: str) -> None:
        real = self._contained(self._root / target, "local requirement")
        if real.is_dir():
            self.local_projects = True
            self.absolute_projects = self.absolute_projects or target.startswith("/")
            self._add_project(real)
        else:
            self.included[os.path.relpath(real, self._root)] = hashlib.sha256(self._read(real)).hexdigest()

    def _add_project(self, folder: Path) -> None:
        inputs = build_inputs(folder)
        self.runs_build = self.runs_build or inputs.everything or bool(inputs.files)
        if inputs.everything:
            self.included["."] = self.included.get(".") or tree_digest(self._root)
        for path in (folder / name for name in (*_PROJECT_FILES, *inputs.files) if (folder / name).is_file()):
            real = self._contained(path, "project file")
            self.included[os.path.relpath(real, self._root)] = hashlib.sha256(self._read(real)).hexdigest()

    def _contained(self, path: Path, what: str) -> Path:
        real = Path(os.path.realpath(path))  # not ``resolve``, which raises for a link to itself
        if not real.is_relative_to(self._root):
            raise EnvironmentBuildError(
                f"{what} {str(path)!r} lies outside the project root {str(self._root)!r}: "
                "move it inside (from Python, EnvironmentRequest can name a wider project_root)"
            )
        return real

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            name = os.path.relpath(path, self._root)
            reason = (
                f"does not exist in {self._place}"
                if isinstance(error, FileNotFoundError)
                else f"cannot be read: {error.strerror}"
            )
            raise EnvironmentBuildError(f"manifest {name!r} {reason}") from error


def _pip_lines(text: str) -> Iterator[str]:
    from debug_server.runner.environments.conda_manifest import parse_environment

    yield from parse_environment(text).pip
