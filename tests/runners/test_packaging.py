"""The programs come with the product: a wheel holds them, and they run from where it is unpacked."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.runners.run_program import ROOT, RUNNERS


def test_an_installed_product_has_its_programs(repository: Path, tmp_path: Path) -> None:
    """The wheel has every module and script of runners/, and the unpacked board runner makes a card."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    place = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    shipped = place / "debug_server" / "shipped"
    wanted = {path.relative_to(ROOT) for kind in ("*.py", "*.sh") for path in RUNNERS.rglob(kind)}
    assert {path.relative_to(shipped) for path in (shipped / "runners").rglob("*") if path.is_file()} == wanted
    assert {path.name.partition("-")[0] for path in place.iterdir()} == {"debug_server"}

    event = b'{"task_id": "A1", "skill": "card.create"}'
    environ = {**os.environ, "PYTHONPATH": f"{shipped}/runners{os.pathsep}{shipped}"}
    command = [sys.executable, "-P", "-m", "board_runner"]
    subprocess.run(command, cwd=repository, env=environ, input=event, check=True)
    assert (repository / "kanban/backlog/TASK-A1.md").exists()
