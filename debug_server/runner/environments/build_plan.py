"""What will be built, decided before anything is: manifests, interpreter, builder and the fingerprint of all three."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.interpreters import Interpreter
from debug_server.runner.environments.manifests import ManifestKind, ManifestSet
from debug_server.runner.environments.request import EnvironmentRequest

_MEANINGFUL = ("python", "builder", "hook")  # what a builder reads; other names only tell environments apart


class Builder(Protocol):
    """One way to fill an environment's folder."""

    @property
    def name(self) -> str:
        """The word that selects it in ``metadata["builder"]``."""

    @property
    def tool(self) -> str:
        """The tool and its version: part of the fingerprint."""

    @property
    def brings_python(self) -> bool:
        """Whether the interpreter is one of the packages, not one of this machine's."""

    @property
    def keeps_records(self) -> bool:
        """Whether every installed distribution lists its files with true digests in RECORD."""

    def build(self, plan: BuildPlan, context: BuildContext) -> None:
        """Fill ``context.target`` or raise EnvironmentBuildError."""

    def sources(self) -> str:
        """Where it takes packages from, as far as manifests do not say: part of the fingerprint."""

    def drop_from_cache(self, packages: list[str], context: BuildContext) -> None:
        """Drop these packages from the tool's own cache, where a tampered file may be linked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """One environment to be."""

    request: EnvironmentRequest
    manifests: ManifestSet
    interpreter: Interpreter
    builder: Builder
    components: dict[str, str]  # what the fingerprint is made of, by name
    fingerprint: str

    @property
    def metadata(self) -> Mapping[str, str]:
        """The request's metadata, never None."""
        return self.request.metadata or {}


def make_plan(
    request: EnvironmentRequest, manifests: ManifestSet, interpreter: Interpreter, builder: Builder
) -> BuildPlan:
    """Put the parts together and fingerprint them."""
    options = {
        "metadata": dict(request.metadata or {}),
        "groups": sorted(request.groups),
        "extras": sorted(request.extras),
    }
    components = {
        "manifests": manifests.digest,
        "interpreter": "of the packages" if builder.brings_python else interpreter.identity(),
        "platform": f"{platform.system()} {platform.machine()}",
        "tool": builder.tool,
        "sources": hashlib.sha256(builder.sources().encode()).hexdigest(),
        "options": json.dumps(options, sort_keys=True),
    }
    fingerprint = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).hexdigest()
    return BuildPlan(
        request=request,
        manifests=manifests,
        interpreter=interpreter,
        builder=builder,
        components=components,
        fingerprint=fingerprint,
    )


def difference(before: Mapping[str, object], after: Mapping[str, str]) -> str:
    """In words, which components changed."""
    changed = [name for name, value in after.items() if before.get(name) != value]
    return f"changed: {', '.join(changed)}" if changed else "not built yet"


def check_parts(request: EnvironmentRequest, manifests: ManifestSet) -> None:
    """Extras and groups are parts of a project's file; without one they would be left out in silence."""
    named = [f"extra {name!r}" for name in request.extras] + [f"group {name!r}" for name in request.groups]
    projects = [path for path in manifests.of(ManifestKind.PROJECT) if path.name == "pyproject.toml"]
    if named and not projects and not manifests.of(ManifestKind.UV_LOCK):
        raise EnvironmentBuildError(f"{named[0]} needs the pyproject.toml that defines it among the manifests")


def check_metadata(request: EnvironmentRequest) -> None:
    """Metadata becomes part of a fingerprint and of command lines: text only."""
    for name, value in (request.metadata or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise EnvironmentBuildError(f"metadata {name!r}: {value!r} must be text on both sides")
        meant = get_close_matches(name.lower(), _MEANINGFUL, n=1)
        if meant and name not in _MEANINGFUL:
            raise EnvironmentBuildError(f"metadata {name!r} means nothing: write {meant[0]!r}, or choose another name")
