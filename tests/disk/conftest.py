"""Fixtures of the removal tests: a folder to remove, host data beside it, mounts that do not outlive the test."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_server.disk import detach_below, kernel, remove_tree


@pytest.fixture(params=["openat2", "openat"])
def system_call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With and without openat2, which older kernels and some container engines do not have."""
    if request.param == "openat":
        monkeypatch.setattr(kernel, "_has_openat2", lambda: False)
    return str(request.param)


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Path]:
    """A folder that is to be removed; whatever a failing test left mounted below is unmounted."""
    path = tmp_path / "doomed"
    path.mkdir()
    yield path
    detach_below(tmp_path)
    subprocess.run(["chattr", "-R", "-i", "-a", os.fspath(tmp_path)], capture_output=True, check=False)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that another user can reach, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="debug-server-removal-"))
    path.chmod(0o755)
    yield path
    detach_below(path)
    assert remove_tree(path) == []


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Somebody's data outside the folder."""
    path = tmp_path / "host"
    (path / "sub").mkdir(parents=True)
    (path / "precious").write_text("data")
    (path / "sub" / "more").write_text("data")
    return path
