"""``debug-server purge``: whatever a data folder still runs is ended, and nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debug_server.config.places import DATA_VARIABLE
from debug_server.disk import list_mounts
from debug_server.errors import InvalidInputError
from debug_server.service.data_folder import survey
from tests.runner.environment_support import make_wheel
from tests.running import ROOT, carrying, eventually, new_mark
from tests.worktrees.places import make_remote

Program = Callable[..., "subprocess.Popen[str]"]
pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Starts our program with its data in ``tmp_path``; what is left of it is killed."""
    started = []
    (tmp_path / ".artifacts").mkdir()

    def start(*arguments: str) -> subprocess.Popen[str]:
        environ = {
            **{name: value for name, value in os.environ.items() if name != DATA_VARIABLE},
            "PYTHONPATH": str(ROOT),
            "DEBUG_SERVER_HOME": str(tmp_path / "none"),
            "XDG_DATA_HOME": str(tmp_path / "data-home"),
            "UV_FIND_LINKS": str(tmp_path / "wheels"),
            "UV_OFFLINE": "1",
        }
        command = [sys.executable, "-m", "debug_server", *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=tmp_path, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its status and its words."""
    out, errors = process.communicate(timeout=100)
    return process.returncode, out, errors


def server(program: Program) -> subprocess.Popen[str]:
    """One that answers."""
    process = program("serve", "--port", "0", "--no-grpc", "--grace", "2")
    assert process.stdout is not None
    eventually(lambda: "serving on" in process.stdout.readline(), what="a server")  # type: ignore[union-attr]
    return process


def killed_run(program: Program, mark: str, *arguments: str) -> None:
    """A command that goes on although the program that started it was killed."""
    code = f"import time; print('runs', flush=True); time.sleep(600)  # {mark}"
    process = program("run", *arguments, "--", "python" if arguments else sys.executable, "-c", code)
    assert process.stdout is not None and process.stdout.readline() == "runs\n"
    process.kill()
    process.wait()
    assert carrying(mark)


def test_everything_of_a_killed_server_goes(tmp_path: Path, program: Program) -> None:
    """Commands, workspaces and sealed environments of killed programs, and a server that runs, are told and go."""
    make_wheel(tmp_path / "wheels", "tiny", "1.0")
    make_remote(tmp_path / "remote").commit({"requirements.txt": "tiny\n"})
    mark, data = new_mark("purge"), tmp_path / ".artifacts"
    killed = server(program)
    killed_run(program, mark, "--repo", "remote", "--manifest", "requirements.txt")
    killed_run(program, mark)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    alive = server(program)
    (data / "mine.txt").write_text("not yours")
    assert said(program("doctor"))[0] == 0
    status, out, errors = said(program("purge"))
    assert status == 2 and "--yes" in errors
    assert f"end process {alive.pid}" in out and out.count(mark) == 2
    assert "remove envs (" in out and "keep mine.txt" in out
    assert len(carrying(mark)) == 2 and alive.poll() is None
    status, out, errors = said(program("--json", "purge", str(data), "--yes"))
    assert status == 0, errors
    assert len(json.loads(out)["commands"]) == 2
    assert alive.wait(100) == 0
    assert carrying(mark) == [] and list_mounts(data) == []
    assert [path.name for path in data.iterdir()] == ["mine.txt"]


def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path, program: Program) -> None:
    """A missing folder, somebody's folder and one with a disk mounted in it are left as they are."""
    with pytest.raises(InvalidInputError, match="there is no data folder"):
        survey(tmp_path / "none")
    home = tmp_path / "home"
    (home / "logs").mkdir(parents=True)
    status, _, errors = said(program("purge", str(home), "--yes"))
    assert status == 2 and "is not a data folder" in errors and (home / "logs").is_dir()
    assert said(program("run", "--", "true"))[0] == 0
    disk, logs = tmp_path / "disk", tmp_path / ".artifacts/logs"
    disk.mkdir()
    (disk / "precious").write_text("x")
    if subprocess.run(["mount", "--bind", disk, logs], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        status, _, errors = said(program("purge", "--yes"))
        assert status == 2 and "is a mount point" in errors
        assert (disk / "precious").read_text() == "x"
    finally:
        subprocess.run(["umount", logs], check=True)
    assert said(program("purge", "--yes"))[0] == 0
    assert not (tmp_path / ".artifacts").exists()


def test_a_server_that_stops_says_what_carries_on(tmp_path: Path, program: Program) -> None:
    """Its last line has the number of commands that the next server adopts; without any, there is no such line."""
    process = server(program)
    process.send_signal(signal.SIGTERM)
    assert "continue" not in said(process)[1]
    process = server(program)
    mark = new_mark("carry")
    killed_run(program, mark)
    process.send_signal(signal.SIGTERM)
    assert said(process)[1].splitlines()[-1] == "1 command continues; the next `debug-server serve` adopts it"
    assert said(program("purge", "--yes"))[0] == 0
    assert carrying(mark) == []


def test_a_second_purge_does_not_reach_for_another_folder(tmp_path: Path, program: Program) -> None:
    """With --yes and no folder, the user's own data folder is never the next best: it must be named."""
    home = tmp_path / "data-home/debug-server"
    assert said(program("run", "--", "true"))[0] == 0
    (home / "owners").mkdir(parents=True, exist_ok=True)
    (home / "owners/identity").write_text("x")
    assert said(program("purge", "--yes"))[0] == 0
    assert not (tmp_path / ".artifacts").exists()
    status, out, errors = said(program("purge", "--yes"))
    assert status == 2 and out == "" and errors.count("\n") == 1
    assert "nothing was removed" in errors and f"debug-server purge --yes {home}" in errors
    assert (home / "owners/identity").exists()
    status, out, errors = said(program("purge", "--yes", str(home)))
    assert status == 0, errors
    assert "keep" not in out and not home.exists()


def test_a_link_says_what_it_leads_to(tmp_path: Path, program: Program) -> None:
    """The folder behind a linked .artifacts is named before it is removed; the link and what lies beside it stay."""
    real = tmp_path / "disk/data"
    real.parent.mkdir()
    (tmp_path / ".artifacts").rename(real)
    (tmp_path / ".artifacts").symlink_to(real)
    assert said(program("run", "--", "true"))[0] == 0
    for arguments in ((), (".artifacts",)):
        status, out, _ = said(program("purge", *arguments))
        assert (
            status == 2
            and f".artifacts is a link and stays; its target is\ndata folder {real} (" in out
            and real.exists()
        )
    status, out, errors = said(program("purge", "--yes"))
    assert status == 0, errors
    assert f"its target is\ndata folder {real} (" in out
    assert not real.exists() and real.parent.exists() and (tmp_path / ".artifacts").is_symlink()


def test_a_damaged_handle_is_one_line(tmp_path: Path, program: Program) -> None:
    """A handle without its keeper is told in one line, on a terminal and as JSON, and removed with the rest."""
    assert said(program("run", "--", "true"))[0] == 0
    run_dir = tmp_path / ".artifacts/keepers/7-1"
    run_dir.mkdir(parents=True)
    (run_dir / "handle.json").write_text("{}")
    status, out, errors = said(program("purge"))
    assert status == 2 and errors.count("\n") == 1
    assert "  damaged, no process is ended for it: keepers/7-1: handle.json has no 'keeper'\n" in out
    status, out, errors = said(program("--json", "purge", "--yes"))
    assert status == 0, errors
    assert json.loads(out)["damaged"] == ["keepers/7-1: handle.json has no 'keeper'"]
