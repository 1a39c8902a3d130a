"""One build from the package index that this machine is set up for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import uv

from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from tests.runner.environment_support import run_python


def test_real_index(tmp_path: Path) -> None:
    """A pinned requirement from the index is installed and importable."""
    manifest = tmp_path / "requirements.txt"
    manifest.write_text("iniconfig==2.0.0\n")
    probe = [uv.find_uv_bin(), "pip", "install", "--quiet", "--python", sys.executable, "-r", str(manifest)]
    probe += ["--target", str(tmp_path / "probe")]  # all that the build loads, which is in uv's cache afterwards
    try:
        subprocess.run(probe, check=True, capture_output=True, timeout=30)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip("no package index can be reached")
    handle = EnvironmentManager(tmp_path / "envs").ensure(EnvironmentRequest("index", [manifest]))
    assert run_python(handle, "import iniconfig; print(iniconfig.IniConfig.__name__)") == "IniConfig"
