"""The environment that a caller gets: its paths, how it was built, and a hold that keeps it from removal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments import leases
from debug_server.runner.environments.layout import MARKER, Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """How a request was answered: reused or built, why, and in what time."""

    hit: bool
    reason: str  # why it was built, or why it could be reused
    seconds: float  # from the request to the handle
    builder: str
    packages: tuple[str, ...]  # name==version
    chosen: str | None = None  # the manifests and their reason, if they were detected
    python: str | None = None  # version and reason of the interpreter, when the project's own files chose it


@dataclass(frozen=True, slots=True)
class EnvironmentHandle:
    """A complete environment. It is shared: do not change it."""

    path: Path
    python_path: Path
    fingerprint: str | None = None
    _: KW_ONLY
    home: Path | None = field(default=None, repr=False, compare=False)  # the root of its manager
    build: BuildReport | None = field(default=None, compare=False)

    @property
    def bin_path(self) -> Path:
        """The folder of its programs."""
        return self.path / "bin"

    @contextlib.contextmanager
    def hold(self) -> Iterator[EnvironmentHandle]:
        """Keep the environment from being collected while the block runs."""
        lease = self._lease()
        if lease is None:
            yield self
            return
        with leases.shared(lease):
            if not (self.path / MARKER).exists():
                raise EnvironmentBuildError(f"environment {str(self.path)!r} was collected: call ensure() again")
            yield self

    def assign(self, pid: int) -> None:
        """Keep the environment until process ``pid`` ends, even if this one ends first; call it inside ``hold()``."""
        if (lease := self._lease()) is not None:
            leases.assign(lease, pid)

    def _lease(self) -> Path | None:
        return None if self.home is None else Layout(self.home).leases / self.path.name
