"""A peer's own environment: made below ``.cache`` by uv from the package index, and used again by later runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from debug_server.runner.environments.uv_builder import find_uv

_FOLDER = Path(__file__).parents[2] / ".cache" / "peers"
_SECONDS = 600.0


class MissingPeerError(Exception):
    """A peer that cannot be had here."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def environment_of(package: str, *, install: bool) -> tuple[Path, str]:
    """The environment of a package, and its name and version; ``install`` makes the environment if it is missing."""
    folder = _FOLDER / package
    note = folder / "installed"  # written last: a killed installation is made anew
    if not note.exists():
        if not install:
            raise MissingPeerError(package, "it is not installed yet: a run with --quick or none installs it")
        note.write_text(_install(package, folder))
    return folder, note.read_text()


def _install(package: str, folder: Path) -> str:
    if (uv := find_uv()) is None:
        raise MissingPeerError(package, "uv is not installed")
    python = folder / "bin" / "python"
    _call(package, uv, "venv", "--quiet", "--clear", "--no-project", "--python", sys.executable, str(folder))
    _call(package, uv, "pip", "install", "--quiet", "--python", str(python), package)
    version = _call(package, str(python), "-c", f"from importlib.metadata import version; print(version({package!r}))")
    return f"{package} {version.strip()}"


def _call(package: str, *argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=_SECONDS)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["no reason given"]
        raise MissingPeerError(package, f"it cannot be installed here: {lines[-1]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingPeerError(package, f"it cannot be installed here: {error}") from error
    return done.stdout
