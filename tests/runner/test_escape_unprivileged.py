"""The same escapes by a plain user, with control groups that root delegated and with none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from debug_server.runner.keeper import cgroup
from tests.running import PROGRAMS, ROOT, TAG, eventually, rooted_in

NOBODY = 65534
CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user and delegate groups")


def _reachable_python() -> str:
    """An interpreter that a plain user may run: ours may lie in a home folder that is closed to others."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        probe = (
            subprocess.run(
                [candidate, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                cwd="/",
                capture_output=True,
                check=False,
            )
            if _may_execute(candidate)
            else None
        )
        if probe is not None and probe.returncode == 0:
            return candidate
    pytest.skip("no Python >= 3.11 that a plain user can reach")


def _may_execute(path: str) -> bool:
    real = Path(path).resolve()
    return real.exists() and all(parent.stat().st_mode & 0o001 for parent in [real, *real.parents])


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of the plain user's with a copy of the package; pytest's own folders are closed to others."""
    root = Path(tempfile.mkdtemp(prefix="escape-", dir="/tmp"))
    root.chmod(0o755)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "debug_server", root / "code" / "debug_server", ignore=ignored)
    shutil.copytree(ROOT / "tests", root / "code" / "tests", ignore=ignored)
    home = root / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    yield home
    eventually(lambda: not rooted_in(root, f"{TAG}={home}"), what="the end of those who tidy up there")
    shutil.rmtree(root)


@pytest.fixture
def delegated() -> Iterator[list[str]]:
    """A child group in each hierarchy that the plain user owns."""
    made = []
    for name, parent in cgroup.own_directories().items():
        if name in CONTROLLERS:
            group = Path(parent) / f"delegated-{os.getpid()}"
            try:
                group.mkdir()
            except OSError as error:
                pytest.skip(f"{group} cannot be made: {error.strerror}")
            made.append(str(group))
            for path in (group, group / "tasks", group / "cgroup.procs"):
                if path.exists():
                    os.chown(path, NOBODY, NOBODY)
    if not made:
        pytest.skip("no version 1 hierarchy to delegate")
    yield made
    for directory in made:
        eventually(partial(_emptied, Path(directory)), what=f"the end of everything in {directory}")


def _emptied(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return not group.exists()
    return True


def _suite(place: Path, containment: str, groups: list[str]) -> dict[str, Any]:
    code = place.parent / "code"
    packages = sysconfig.get_path("purelib")
    program = code / "tests" / "runner" / "programs" / PROGRAMS.joinpath("escape_suite.py").name
    done = subprocess.run(
        [_reachable_python(), "-B", str(program), str(place), containment, str(NOBODY), *groups],
        env={"PYTHONPATH": f"{code}:{packages}", "PATH": os.defpath, "HOME": str(place), TAG: str(place)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_with_delegated_groups(place: Path, delegated: list[str]) -> None:
    """A plain user with groups of its own: nothing escapes, and groups hold the trees."""
    assert _suite(place, "auto", delegated) == {"wrong": [], "mechanism": "cgroup-v1", "user": NOBODY}


@pytest.mark.parametrize("mechanism", ["pid-namespace", "session"])
def test_without_groups(place: Path, mechanism: str) -> None:
    """A plain user without groups: nothing escapes a namespace of its own, nor a session below a subreaper."""
    if mechanism == "pid-namespace" and not _user_namespaces():
        pytest.skip("plain users may not make user namespaces here")
    assert _suite(place, mechanism, []) == {"wrong": [], "mechanism": mechanism, "user": NOBODY}


def test_groups_that_cannot_be_left_are_not_used(place: Path, delegated: list[str]) -> None:
    """Only the folders were given away: a keeper could enter a group below and never come back, so none is used."""
    for directory in delegated:
        for name in ("tasks", "cgroup.procs"):
            os.chown(Path(directory) / name, 0, 0)
    text = (
        "import os, sys\nfor group in sys.argv[1:]: open(f'{group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "from debug_server.runner.keeper.containment import choose\nprint(choose('auto').name)"
    )
    done = subprocess.run(
        [_reachable_python(), "-B", "-c", text, *delegated],
        env={"PYTHONPATH": str(place.parent / "code")},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() in ("pid-namespace", "session"), done.stderr


def _user_namespaces() -> bool:
    return (
        subprocess.run(
            ["unshare", "--user", "--pid", "--fork", "--mount-proc", "true"],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )
