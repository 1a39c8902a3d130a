"""Setting up the project on a bare machine, as far as it can be proved without a network."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that set-up reads, in a folder with a space in its name."""
    folder = tmp_path / "check out"
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, folder)
    return folder


def run_setup(checkout: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """``scripts/setup`` in that folder."""
    command = ["sh", str(checkout / "scripts/setup")]
    environ = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(command, env=environ, check=False, capture_output=True, text=True)


def write_program(path: Path, text: str) -> Path:
    """A shell program."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_without_a_python_setup_says_what_to_do(checkout: Path, tmp_path: Path) -> None:
    """A missing interpreter and a shim that selects none both end with status 1 and a way out."""
    shim = write_program(tmp_path / "python3", "echo 'no version selected' >&2; exit 127")
    for python in (str(tmp_path / "missing"), str(shim)):
        done = run_setup(checkout, PYTHON=python)
        assert done.returncode == 1
        assert f"no Python 3.11 or newer found (tried {python})" in done.stderr


def test_without_ensurepip_setup_names_the_package_to_install(checkout: Path) -> None:
    """An interpreter that cannot make virtual environments ends with the system package that it lacks."""
    code = "import sys, runpy; sys.modules['ensurepip'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, "-c", code, str(checkout / "scripts/bootstrap.py")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "apt-get install python3" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_complete_environment_costs_nothing(checkout: Path, tmp_path: Path) -> None:
    """Set-up runs once; it runs again when the lock changes or when the tree was copied elsewhere."""
    # Stands in for an interpreter: it says yes to the version check and counts the set-ups.
    counter = tmp_path / "count"
    venv = checkout / ".venv/bin"
    python = write_program(
        tmp_path / "python",
        f'[ "$1" = -c ] && exit 0; echo x >>{counter}; mkdir -p .venv/bin; touch .venv/bin/python; '
        "chmod +x .venv/bin/python",
    )
    for _ in range(2):
        assert run_setup(checkout, PYTHON=str(python)).returncode == 0
    assert counter.read_text() == "x\n"
    assert (venv / "python").exists()
    (checkout / "requirements/dev.txt").write_text("changed\n")
    run_setup(checkout, PYTHON=str(python))
    assert counter.read_text() == "x\n" * 2
    run_setup(checkout.rename(tmp_path / "moved"), PYTHON=str(python))
    assert counter.read_text() == "x\n" * 3


def test_make_help_lists_every_target() -> None:
    """Each target of the Makefile has its line of help."""
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, check=True, capture_output=True, text=True)
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    assert listed >= {
        "demo",
        "test",
        "test-quick",
        "bench",
        "soak",
        "lint",
        "format",
        "lock",
        "test-extras",
        "clean",
        "help",
    }


@pytest.mark.parametrize("setting", ["user = true", "target = {elsewhere}", "prefix = {elsewhere}"])
def test_pip_settings_do_not_move_uv(checkout: Path, tmp_path: Path, setting: str) -> None:
    """uv comes from the user's index and goes into the environment, whatever their pip is told to do elsewhere."""
    wheel = tmp_path / "index" / "uv-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("uv_marker.py", "")
        file.writestr("uv-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 1.0\n")
        file.writestr("uv-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("uv-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (checkout / "requirements/dev.txt").write_text(f"uv==1.0 \\\n    --hash=sha256:{digest}\n")
    subprocess.run([sys.executable, "-m", "venv", str(checkout / ".venv")], check=True)
    pip = tmp_path / "home" / ".config" / "pip" / "pip.conf"
    pip.parent.mkdir(parents=True)
    chosen = setting.format(elsewhere=tmp_path / "elsewhere")
    pip.write_text(f"[global]\nno-index = true\nfind-links = {wheel.parent}\n[install]\n{chosen}\n")
    code = "import runpy, sys; runpy.run_path(sys.argv[1])['install_uv']()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(checkout / "scripts/bootstrap.py")],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert list((checkout / ".venv").glob("lib/python3*/site-packages/uv_marker.py"))
    assert not (tmp_path / "elsewhere").exists()
