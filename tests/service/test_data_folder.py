"""``purge`` ends and removes what belongs to a data folder; forged files in it lead to nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from debug_server.disk import remove_tree
from debug_server.errors import ConfigurationError, DebugServerError, InvalidInputError
from debug_server.runner.keeper.linux import boot_id, start_time
from debug_server.service.data_folder import purge, survey
from tests.running import eventually

NOBODY = 65534
SECONDS = 2.0
Sleeper = Callable[..., "subprocess.Popen[bytes]"]
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def data() -> Iterator[Path]:
    """A data folder with an identity and nothing else, below a folder that every user can reach."""
    above = Path(tempfile.mkdtemp(prefix="debug-server-purge-"))
    above.chmod(0o755)
    folder = above / ".artifacts"
    (folder / "owners").mkdir(mode=0o700, parents=True)
    (folder / "owners/identity").write_text("x")
    yield folder
    assert remove_tree(above) == []


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Starts processes that do nothing; they are killed afterwards."""
    started = []

    def start(**options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "600"], **options))
        eventually(lambda: Path(f"/proc/{started[-1].pid}/comm").read_text() == "sleep\n", what="a sleeper")
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def forge(data: Path, keeper: int, **changes: Any) -> Path:
    """A run directory whose handle names that process as its keeper."""
    run_dir = data / "keepers/7-1"
    run_dir.mkdir(parents=True)
    started = start_time(keeper)
    handle = {
        "command_id": 7,
        "attempt": 1,
        "keeper": {"pid": keeper, "start_time": started, "boot_id": boot_id()},
        "tree": {"mechanism": "session", "reaper": keeper, "marker": f"{keeper}-{started}"},
        "log_path": str(data / "logs/7.log"),
    }
    (run_dir / "handle.json").write_text(json.dumps({**handle, **changes}))
    return run_dir


def tree_of(data: Path) -> set[str]:
    """Everything in a folder."""
    return {str(path.relative_to(data)) for path in data.rglob("*")}


@only_root
def test_root_is_told_to_purge_as_the_owner(data: Path) -> None:
    """Another user's folder is refused to root and left as it is; the command that is named runs as that user."""
    for path in (data, *data.rglob("*")):
        os.lchown(path, NOBODY, NOBODY)
    before = tree_of(data)
    with pytest.raises(InvalidInputError, match=f"belongs to user {NOBODY}") as told:
        survey(data)
    assert "\n" not in str(told.value) and tree_of(data) == before
    words = shlex.split(str(told.value).partition("as that user: ")[2])
    assert words[-3:] == ["debug-server", "purge", str(data)]
    assert subprocess.check_output([*words[:-3], "id", "-u"], text=True) == f"{NOBODY}\n"


def test_a_folder_that_others_may_write_to_is_refused(data: Path) -> None:
    """What another user could have forged is not acted upon: the folder, or one above it, must be trusted."""
    for path in (data, data.parent):
        mode = path.stat().st_mode
        path.chmod(0o777)
        with pytest.raises(ConfigurationError, match="other users may write to"):
            survey(data)
        path.chmod(mode)
    assert survey(data).root == data


def test_a_folder_that_was_replaced_is_left_alone(data: Path) -> None:
    """A link that takes the folder's place after the survey leads nowhere."""
    found = survey(data)
    other = data.rename(data.with_name("other"))
    (data.parent / "third/owners").mkdir(parents=True)
    (data.parent / "third/owners/identity").write_text("x")
    data.symlink_to("third")
    with pytest.raises(DebugServerError, match="was replaced"):
        purge(found, seconds=SECONDS)
    assert (data / "owners/identity").exists() and (other / "owners/identity").exists()


@only_root
@pytest.mark.parametrize("role", ["keeper", "init"])
def test_a_forged_handle_ends_no_process_of_another_user(data: Path, sleeper: Sleeper, role: str) -> None:
    """A handle that names another user's process, as keeper or as init, is told as damaged and ends nothing."""
    foreign = sleeper(user=NOBODY, group=NOBODY, extra_groups=[])
    tree = {"mechanism": "pid-namespace", "init": foreign.pid, "started": start_time(foreign.pid)}
    forge(data, foreign.pid if role == "keeper" else sleeper().pid, **({"tree": tree} if role == "init" else {}))
    found = survey(data)
    assert found.commands == [] and f"process {foreign.pid} belongs to user {NOBODY}" in found.damaged[0]
    assert purge(found, seconds=SECONDS) == [] and not data.exists()
    assert foreign.poll() is None


def test_a_forged_group_ends_and_removes_nothing(data: Path, sleeper: Sleeper, tmp_path: Path) -> None:
    """Only a control group that bears the keeper's name is emptied: neither any folder nor any other group."""
    process, keeper = sleeper(), sleeper()
    for group in (tmp_path / "group", tmp_path / f"debug-server-run-{keeper.pid}-{start_time(keeper.pid)}-1"):
        (group / "empty").mkdir(parents=True)
        (group / "cgroup.procs").write_text(f"{process.pid}\n")
        (group / "cgroup.kill").write_text("")
        run_dir = forge(data, keeper.pid, tree={"mechanism": "cgroup-v2", "groups": {"": str(group)}})
        found = survey(data)
        assert found.commands == [] and "is not a control group of process" in found.damaged[0]
        remove_tree(run_dir)
    forge(data, keeper.pid, tree={"mechanism": "cgroup-v1", "groups": {"pids": str(group)}})
    assert purge(survey(data), seconds=SECONDS) == []
    assert process.poll() is None and (group / "empty").is_dir() and (group / "cgroup.kill").read_text() == ""


def test_a_forged_log_path_leads_nowhere(data: Path, sleeper: Sleeper, tmp_path: Path) -> None:
    """A command is ended without a file being written where its handle says that its log is."""
    keeper, log = sleeper(), tmp_path / "precious"
    log.write_text("x")
    forge(data, keeper.pid, log_path=str(log))
    assert purge(survey(data), seconds=SECONDS) == []
    assert keeper.wait(100) == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("precious")] == ["precious"]


def test_a_link_to_a_lock_ends_nobody(data: Path, tmp_path: Path) -> None:
    """A process that holds a lock elsewhere is not ended because a link in the folder leads to that lock."""
    lock = tmp_path / "lock"
    lock.touch()
    code = (
        "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, 2); print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, lock], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        (data / f"owners/host.{holder.pid}-x.lock").symlink_to(lock)
        found = survey(data)
        assert found.processes == [] and purge(found, seconds=SECONDS) == []
        assert holder.poll() is None and lock.exists()
    finally:
        holder.kill()
        holder.communicate()


def test_links_in_the_folder_are_removed_themselves(data: Path, tmp_path: Path) -> None:
    """Parts of the folder that are links go; what they lead to stays, and is not read for processes to end."""
    for name in ("keepers", "logs", "envs"):
        (tmp_path / name / "7-1").mkdir(parents=True)
        (data / name).symlink_to(tmp_path / name)
    found = survey(data)
    assert found.commands == [] and found.damaged == []
    assert purge(found, seconds=SECONDS) == [] and not data.exists()
    assert all((tmp_path / name / "7-1").is_dir() for name in ("keepers", "logs", "envs"))


@pytest.mark.timeout(60)
def test_pipes_do_not_hang_it(data: Path) -> None:
    """A FIFO where a file is expected is not waited for."""
    for name in ("data/server.lock", "server.lock", "data/metadata.db", "keepers/7-1/handle.json", "envs/.locks/x"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(data / name)
    os.mkfifo(data / f"owners/host.{os.getppid()}-x.lock")
    assert "keepers/7-1: handle.json: it is not a regular file" in survey(data).damaged
    with pytest.raises(DebugServerError, match="regular file"):
        purge(survey(data), seconds=SECONDS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting"),
        ("[]", "has no attribute"),
        ("{}", "has no 'keeper'"),
        ('{"keeper": 1}', "subscriptable"),
    ],
)
def test_a_damaged_handle_is_told(data: Path, text: str, reason: str) -> None:
    """A handle that cannot be understood is one line of the survey, and the folder can be removed."""
    (data / "keepers/7-1").mkdir(parents=True)
    (data / "keepers/7-1/handle.json").write_text(text)
    found = survey(data)
    assert len(found.damaged) == 1 and "\n" not in found.damaged[0]
    assert found.damaged[0].startswith("keepers/7-1: handle.json") and reason in found.damaged[0]
    assert purge(found, seconds=SECONDS) == [] and not data.exists()


def test_the_notes_of_a_user_are_removed(data: Path) -> None:
    """``told`` is ours, and a folder with nothing but notes can be removed; one with another file cannot."""
    remove_tree(data / "owners")
    (data / "told").mkdir()
    (data / "told/0123").touch()
    (data / "mine").touch()
    with pytest.raises(InvalidInputError, match="is not a data folder"):
        survey(data)
    (data / "mine").unlink()
    found = survey(data)
    assert found.foreign == [] and purge(found, seconds=SECONDS) == [] and not data.exists()


def test_a_server_that_starts_meanwhile_is_not_overrun(data: Path) -> None:
    """While somebody unknown holds the server's lock, nothing is removed."""
    (data / "server.lock").write_text("none")
    with (data / "server.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DebugServerError, match="a server was started"):
            purge(survey(data), seconds=SECONDS)
    assert (data / "owners/identity").exists()
