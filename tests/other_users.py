"""Programs that run as another user of this machine, and what such a user needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.repositories import make_repository
from tests.running import ROOT

_SYSTEM_PYTHON = "/usr/bin/python3"


def as_user(
    uid: int,
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: Any = subprocess.PIPE,
    stderr: Any = subprocess.PIPE,
    bounds: Mapping[str, int | None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program as ``uid``, in a session of its own; ``bounds`` are limits by their names for prlimit."""
    become: dict[str, Any] = {} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}
    limits = [f"--{name}={most}:{most}" for name, most in (bounds or {}).items() if most is not None]
    return subprocess.Popen(
        [*(["prlimit", *limits] if limits else []), *argv],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        **become,
    )


def owned_repository(path: Path, uid: int, files: Mapping[str, str] | None = None) -> Path:
    """A git repository with one commit that belongs to ``uid``."""
    make_repository(path, files)
    if uid != os.geteuid():
        for entry in [path, *path.rglob("*")]:
            os.lchown(entry, uid, uid)
    return path


def shared_python(folder: Path) -> str:
    """An interpreter with the product, in a place that every user can reach.

    The checkout, its environment or its interpreter may lie in a home folder that is closed to others.
    """
    if os.geteuid() != 0:
        return sys.executable
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    place = folder / "product"
    python = str(place / "bin" / "python")
    copied = {**os.environ, "UV_LINK_MODE": "copy"}
    locked = ["--constraint", str(ROOT / "requirements/dev.txt")]
    for line in (
        ["venv", "--python", _SYSTEM_PYTHON, str(place)],
        ["pip", "install", "--python", python, *locked, str(ROOT)],
    ):
        subprocess.run([uv, *line], env=copied, cwd=folder, capture_output=True, check=True)
    return python
