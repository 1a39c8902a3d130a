"""Version 2 cgroups with controllers, in a User Mode Linux guest: this machine's own cgroups do not matter."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNEL = shutil.which("linux.uml")
GUEST_SECONDS = 280
Results = dict[str, dict[str, Any]]

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


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What the guest said; it boots once, however many workers of pytest share these tests."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # one for all workers of this run
    with (place / "cgroup2-guest.json").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if not (text := file.read()):
            text = json.dumps(_guest())
            file.write(text)
        found: Results = json.loads(text)
    return found


def _guest() -> Results:
    place = Path(tempfile.mkdtemp(prefix="guest-"))
    try:
        place.chmod(0o755)
        shutil.copytree(ROOT / "debug_server", place / "debug_server", ignore=shutil.ignore_patterns("__pycache__"))
        programs = place / "tests" / "runner" / "programs"
        shutil.copytree(ROOT / "tests" / "runner" / "programs", programs)
        return _boot(programs)
    finally:
        shutil.rmtree(place)


def _boot(programs: Path) -> Results:
    assert KERNEL is not None
    guest = subprocess.run(
        [
            KERNEL,
            "mem=768M",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            f"init={programs / 'cgroup2_init.sh'}",
            "con=null",
            "con0=fd:0,fd:1",
            "quiet",
            f"GUEST_PYTHON={_interpreter()}",
            f"GUEST_PROGRAM={programs / 'cgroup2_guest.py'}",
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


def outcome(results: Results, name: str) -> dict[str, Any]:
    """One scenario's result; a scenario that broke down says why."""
    assert "error" not in results[name], results[name]["error"]
    return results[name]


@pytest.fixture(params=["0", "65534"], ids=["root", "delegated"])
def user(request: pytest.FixtureRequest) -> str:
    """Root in the root group, and a plain user in a group that was delegated to it."""
    return str(request.param)


def test_controllers_are_found_and_handed_down(results: Results, user: str) -> None:
    """Memory, pids and cpu are enforced by version 2 cgroups, for root and for whom they are delegated to."""
    expected = {"mechanism": "cgroup-v2", "controllers": ["cpu", "memory", "pids"]}
    assert outcome(results, f"capabilities-{user}") == expected
    limits = outcome(results, f"quick-{user}")["limits"]
    assert {name: limits[name]["by"] for name in ("memory_bytes", "cpus", "pids")} == {
        "memory_bytes": "cgroup",
        "cpus": "cgroup",
        "pids": "cgroup",
    }
    assert outcome(results, f"quick-{user}")["reason"] == "exited"


def test_memory_exhaustion_is_proved_by_the_counter(results: Results, user: str) -> None:
    """A child and a grandchild below a shell that returns 0 both end as out_of_memory, with oom_kill as evidence."""
    for name in ("memory", "memory_below_shell"):
        found = outcome(results, f"{name}-{user}")
        assert found["reason"] == "out_of_memory"
        assert found["evidence"]["counters"]["oom_kill"] >= 1


def test_nothing_escapes_the_group(results: Results, user: str) -> None:
    """After a timeout and after the keeper's death no process of the tree is left, and no group either."""
    assert outcome(results, f"escapees-{user}")["reason"] == "timed_out"
    assert outcome(results, f"escapees-{user}")["left"] == 0
    assert outcome(results, f"keeper_killed-{user}")["reason"] == "lost"
    assert outcome(results, f"keeper_killed-{user}")["left"] == 0
    assert outcome(results, f"leftovers-{user}")["groups"] == []


def test_a_fork_storm_is_bounded(results: Results, user: str) -> None:
    """The pids limit holds and its counter says so."""
    found = outcome(results, f"storm-{user}")
    assert found["evidence"]["counters"]["pids_max"] > 0
    assert found["reason"] in ("nonzero_exit", "timed_out")  # the shell itself may give up first


def test_cpu_seconds_of_the_whole_tree(results: Results, user: str) -> None:
    """Two busy loops together end at the limit of their tree."""
    found = outcome(results, f"cpu-{user}")
    assert found["reason"] == "limit_exceeded"
    assert 1.0 <= found["cpu"] < 20.0
