"""Environments: a hit, and a rebuild of 25 packages from a warm cache against plain uv."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, Result, Size, Skipped, at_most, interleaved, milliseconds, timed
from benchmarks.packages import TWENTY_FIVE, requirements
from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from debug_server.runner.environments.uv_builder import find_uv

_HITS = {Size.FULL: 500, Size.QUICK: 100, Size.SMALLEST: 1}
_REBUILDS = {Size.FULL: 15, Size.QUICK: 3, Size.SMALLEST: 1}
_PACKAGES = {Size.FULL: TWENTY_FIVE, Size.QUICK: TWENTY_FIVE, Size.SMALLEST: ("pluggy", "iniconfig")}


def measure(size: Size) -> list[Result]:
    """Both figures; skipped where the packages cannot be had."""
    if (uv := find_uv()) is None:
        return [Skipped(name="all", reason="uv is not installed")]
    with tempfile.TemporaryDirectory(prefix="debug-server-bench-") as name:
        folder = Path(name)
        manifest = folder / "requirements.txt"
        manifest.write_text(requirements(_PACKAGES[size]))
        request = EnvironmentRequest("bench", [manifest], {"python": sys.executable}, project_root=folder)
        manager = EnvironmentManager(folder / "environments")
        try:
            manager.ensure(request)
        except EnvironmentBuildError as error:
            return [Skipped(name="all", reason=f"the packages cannot be installed here: {error}")]
        return [_hit(manager, request, size), _rebuild(manager, request, PlainUv(uv, folder, manifest), size)]


class PlainUv:
    """``uv venv`` and ``uv pip install`` as a person types them."""

    def __init__(self, program: str, folder: Path, manifest: Path) -> None:
        self._program, self._folder, self._manifest = program, folder, manifest
        self.target = folder / "plain"

    def build(self) -> None:
        """Make the environment anew."""
        python = str(self.target / "bin" / "python")
        self._run("venv", "--quiet", "--clear", "--no-project", "--python", sys.executable, str(self.target))
        self._run("pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", str(self._manifest))

    def _run(self, *arguments: str) -> None:
        environ = {**os.environ, "UV_LINK_MODE": os.environ.get("UV_LINK_MODE", "hardlink")}
        subprocess.run([self._program, *arguments], cwd=self._folder, env=environ, check=True, capture_output=True)


def _hit(manager: EnvironmentManager, request: EnvironmentRequest, size: Size) -> Result:
    (hits,) = interleaved(lambda: timed(lambda: manager.ensure(request)), rounds=_HITS[size], warm_up=3)
    return Figure(name="hit_p50", value=milliseconds(hits.p50), unit="ms", bar=at_most(2), facts=hits.facts("ours"))


def _rebuild(manager: EnvironmentManager, request: EnvironmentRequest, plain: PlainUv, size: Size) -> Result:
    ours, peer = interleaved(
        lambda: timed(lambda: manager.ensure(request, force=True)), lambda: timed(plain.build), rounds=_REBUILDS[size]
    )
    facts = {"packages": len(_PACKAGES[size])} | ours.facts("ours") | peer.facts("uv")
    return Figure(name="rebuild", value=round(ours.p50 / peer.p50, 4), unit="times", bar=at_most(1.15), facts=facts)
