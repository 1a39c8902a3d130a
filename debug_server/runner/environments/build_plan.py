"""The plan of a build: manifests, interpreter, builder, and the fingerprint of all three."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Protocol

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.dependency_groups import split_groups
from debug_server.runner.environments.interpreters import Interpreter
from debug_server.runner.environments.manifests import ManifestKind, ManifestSet
from debug_server.runner.environments.request import EnvironmentRequest

_MEANINGFUL = ("python", "builder", "hook")  # names that a builder reads; others only change the fingerprint


class Builder(Protocol):
    """One way to build an environment."""

    @property
    def name(self) -> str:
        """The word that selects it in ``metadata["builder"]``."""

    @property
    def tool(self) -> str:
        """The tool and its version: part of the fingerprint."""

    @property
    def brings_python(self) -> bool:
        """Whether the builder installs the interpreter itself, instead of using one of this machine."""

    @property
    def keeps_records(self) -> bool:
        """Whether every installed distribution lists its files with true digests in RECORD."""

    def build(self, plan: BuildPlan, context: BuildContext) -> None:
        """Fill ``context.target`` or raise EnvironmentBuildError."""

    def sources(self) -> str:
        """The package indexes that it uses, where the manifests name none: part of the fingerprint."""

    def drop_from_cache(self, packages: list[str], context: BuildContext) -> None:
        """Remove these packages from the tool's cache: their files may be hard links to damaged ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """The plan of one environment."""

    request: EnvironmentRequest
    manifests: ManifestSet
    interpreter: Interpreter
    builder: Builder
    components: dict[str, str]  # what the fingerprint is made of, by name
    fingerprint: str
    python_reason: str | None  # why this interpreter, when the project's own files chose it

    @property
    def metadata(self) -> Mapping[str, str]:
        """The request's metadata, never None."""
        return self.request.metadata or {}


def make_plan(
    request: EnvironmentRequest,
    manifests: ManifestSet,
    interpreter: Interpreter,
    builder: Builder,
    *,
    python_reason: str | None = None,
) -> BuildPlan:
    """Put the parts together and fingerprint them."""
    options = {
        "metadata": dict(request.metadata or {}),
        "groups": sorted(request.groups),
        "extras": sorted(request.extras),
        **({"packages": sorted(request.packages)} if request.packages else {}),
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
        python_reason=python_reason,
    )


def difference(before: Mapping[str, object], after: Mapping[str, str]) -> str:
    """Which components changed, as a phrase for the log."""
    changed = [name for name, value in after.items() if before.get(name) != value]
    return f"changed: {', '.join(changed)}" if changed else "not built yet"


def with_own_groups(request: EnvironmentRequest, manifests: ManifestSet) -> EnvironmentRequest:
    """``request`` with the requirements of groups that no build tool reads (Poetry, PDM, hatch) as packages.

    EnvironmentBuildError for extras or groups without the file that defines them, which would be ignored silently.
    """
    projects = manifests.of(ManifestKind.PROJECT, ManifestKind.UV_LOCK)
    named = [f"extra {name!r}" for name in request.extras] + [f"group {name!r}" for name in request.groups]
    if named and not projects:
        raise EnvironmentBuildError(f"{named[0]} needs the pyproject.toml that defines it among the manifests")
    if not request.groups:
        return request
    groups, packages = split_groups(list(dict.fromkeys(path.parent for path in projects)), request.groups)
    return replace(request, groups=groups, packages=[*request.packages, *packages])


def check_metadata(request: EnvironmentRequest) -> None:
    """EnvironmentBuildError for metadata that is not strings, or whose name looks misspelt."""
    for name, value in (request.metadata or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise EnvironmentBuildError(f"metadata {name!r}: {value!r}: name and value must be strings")
        meant = get_close_matches(name.lower(), _MEANINGFUL, n=1)
        if meant and name not in _MEANINGFUL:
            raise EnvironmentBuildError(
                f"metadata {name!r} is not known: did you mean {meant[0]!r}? If not, choose another name"
            )
