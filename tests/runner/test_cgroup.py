"""Both versions of cgroups, with controllers, in User Mode Linux guests: this machine's own cgroups do not matter."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNEL = shutil.which("linux.uml")
GUEST_SECONDS = 280
Results = dict[str, dict[str, Any]]
USERS = {"v2": ["0", "65534"], "v1": ["0"]}  # root in the root group; a plain user in a delegated group
CONTROLLERS = {"v2": ["cpu", "memory", "pids"], "v1": ["cpu", "cpuacct", "memory", "pids"]}
GUESTS = [(version, user) for version, users in USERS.items() for user in users]

pytestmark = [
    pytest.mark.skipif(KERNEL is None, reason="needs User Mode Linux: make test-extras"),
    pytest.mark.timeout(GUEST_SECONDS + 20),  # whoever comes first waits for the guest, and so do the others
]


def _interpreter() -> str:
    """One that a plain user of the guest can read too."""
    for candidate in ("/usr/bin/python3", sys.executable):
        check = [candidate, "-I", "-c", "import sqlite3, sys; sys.exit(sys.version_info < (3, 11))"]
        if Path(candidate).exists() and subprocess.run(check, check=False, capture_output=True).returncode == 0:
            return candidate
    pytest.skip("no Python 3.11 that the guest could run")


@dataclass(frozen=True)
class Guest:
    """What one user saw in one guest."""

    version: str
    user: str
    results: Results

    def outcome(self, name: str) -> dict[str, Any]:
        """One scenario's result; a scenario that broke down says why."""
        found = self.results[f"{name}-{self.user}"]
        assert "error" not in found, found["error"]
        return found


@pytest.fixture(params=GUESTS, ids="-".join)
def guest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Guest:
    """Each kind of guest boots once, however many workers of pytest share these tests."""
    version, user = request.param
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # one for all workers of this run
    with (place / f"cgroup-{version}.json").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if not (text := file.read()):
            text = json.dumps(_results(version))
            file.write(text)
        return Guest(version, user, json.loads(text))


def _results(version: str) -> Results:
    place = Path(tempfile.mkdtemp(prefix="guest-"))
    try:
        place.chmod(0o755)
        shutil.copytree(ROOT / "debug_server", place / "debug_server", ignore=shutil.ignore_patterns("__pycache__"))
        programs = place / "tests" / "runner" / "programs"
        shutil.copytree(ROOT / "tests" / "runner" / "programs", programs)
        return _boot(programs, version)
    finally:
        shutil.rmtree(place)


def _boot(programs: Path, version: str) -> Results:
    assert KERNEL is not None
    guest = subprocess.run(
        [
            KERNEL,
            "mem=768M",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            f"init={programs / 'cgroup_init.sh'}",
            "con=null",
            "con0=fd:0,fd:1",
            "quiet",
            f"GUEST_CGROUPS={version}",
            f"GUEST_USERS={','.join(USERS[version])}",
            f"GUEST_PYTHON={_interpreter()}",
            f"GUEST_PROGRAM={programs / 'cgroup_guest.py'}",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=GUEST_SECONDS,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(programs), "TMPDIR": str(programs)},
    )
    found: Results = {}
    for line in guest.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith("RESULT "):
            _, name, text = line.split(" ", 2)
            found[name] = json.loads(text)
    if "GUEST-DONE" not in guest.stdout.decode("utf-8", "replace"):
        pytest.fail(f"the guest did not finish: {guest.stdout.decode('utf-8', 'replace')[-2000:]}")
    return found


def test_controllers_are_found_and_handed_down(guest: Guest) -> None:
    """Memory, pids and cpu are enforced, for root and for whom groups are delegated to, also by shared hierarchies."""
    expected = {"mechanism": f"cgroup-{guest.version}", "controllers": CONTROLLERS[guest.version]}
    assert guest.outcome("capabilities") == expected
    limits = guest.outcome("quick")["limits"]
    assert {name: limits[name]["by"] for name in ("memory_bytes", "cpus", "pids")} == {
        "memory_bytes": "cgroup",
        "cpus": "cgroup",
        "pids": "cgroup",
    }
    assert guest.outcome("quick")["reason"] == "exited"


def test_memory_exhaustion_is_proved_by_the_counter(guest: Guest) -> None:
    """A child and a grandchild below a shell that returns 0 both end as out_of_memory, with oom_kill as evidence."""
    for name in ("memory", "memory_below_shell"):
        found = guest.outcome(name)
        assert found["reason"] == "out_of_memory"
        assert found["evidence"]["counters"]["oom_kill"] >= 1


def test_nothing_escapes_the_group(guest: Guest) -> None:
    """After a timeout and after the keeper's death no process of the tree is left, and no group either."""
    assert guest.outcome("escapees")["reason"] == "timed_out"
    assert guest.outcome("escapees")["left"] == 0
    assert guest.outcome("keeper_killed")["reason"] == "lost"
    assert guest.outcome("keeper_killed")["left"] == 0
    assert guest.outcome("leftovers")["groups"] == []


def test_a_fork_storm_is_bounded(guest: Guest) -> None:
    """The pids limit holds and its counter says so."""
    found = guest.outcome("storm")
    assert found["evidence"]["counters"]["pids_max"] > 0
    assert found["reason"] in ("nonzero_exit", "timed_out")  # the shell itself may give up first


def test_cpu_seconds_of_the_whole_tree(guest: Guest) -> None:
    """Two busy loops together end at the limit of their tree."""
    found = guest.outcome("cpu")
    assert found["reason"] == "limit_exceeded"
    assert 1.0 <= found["cpu"] < 20.0
