"""Collecting environments: by last use and budget, never while used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environment import EnvironmentHandle, EnvironmentManager
from tests.runner.environment_support import ensure_elsewhere, environments, hook


@pytest.fixture
def manager(tmp_path: Path) -> EnvironmentManager:
    """A manager of its own."""
    return EnvironmentManager(tmp_path / "envs")


def _make(manager: EnvironmentManager, name: str, *, size: int = 0, idle: float = 0) -> EnvironmentHandle:
    """An environment of ``size`` bytes that was last used ``idle`` seconds ago."""
    command = f'head -c {size} /dev/zero > "$DEBUG_SERVER_ENV_PATH/{name}"'
    handle = manager.ensure(hook(command, name=name, root=manager.root))
    then = time.time() - idle
    os.utime(manager.root / ".leases" / handle.path.name, (then, then))
    return handle


def test_idle_environments_go(manager: EnvironmentManager) -> None:
    """What nobody used for max_idle goes, with its name; the rest stays, and the gone one can be had again."""
    old, new = _make(manager, "old", idle=7200), _make(manager, "new", idle=600)
    assert manager.collect_garbage(max_idle=timedelta(hours=1)).removed == (old.path.name,)
    assert environments(manager) == [new.path.name]
    assert not (manager.root / "old").is_symlink()
    assert (manager.root / "new").exists()
    assert sorted(path.name for path in (manager.root / ".leases").iterdir()) == [new.path.name]
    assert not list((manager.root / ".seals").glob(f"{old.path.name}*"))
    again = _make(manager, "old")
    assert again.build is not None
    assert not again.build.hit


def test_use_renews(manager: EnvironmentManager) -> None:
    """A hit counts as use."""
    _make(manager, "e", idle=7200)
    manager.ensure(hook('head -c 0 /dev/zero > "$DEBUG_SERVER_ENV_PATH/e"', name="e", root=manager.root))
    assert manager.collect_garbage(max_idle=3600).removed == ()


def test_budget_takes_the_longest_idle_first(manager: EnvironmentManager) -> None:
    """Above max_bytes the longest idle go, and no more than needed."""
    handles = [_make(manager, f"e{age}", size=100_000, idle=age) for age in (400, 300, 200, 100)]
    result = manager.collect_garbage(max_bytes=250_000)
    assert result.removed == (handles[0].path.name, handles[1].path.name)
    assert result.freed_bytes >= 200_000
    assert result.kept_bytes <= 250_000


def test_just_served_stays(manager: EnvironmentManager) -> None:
    """Between ensure and hold an environment is safe, whatever the budget says."""
    handle = _make(manager, "e", size=1000)
    assert manager.collect_garbage(max_idle=0, max_bytes=0).removed == ()
    with handle.hold():
        assert handle.path.is_dir()


def test_held_by_another_process(manager: EnvironmentManager, tmp_path: Path) -> None:
    """An environment that another process holds stays, and goes once that process is killed."""
    spec = {"name": "h", "metadata": {"builder": "hook", "hook": "true"}, "root": str(tmp_path), "hold": True}
    holder = ensure_elsewhere(manager.root, spec)
    assert holder.stdout is not None
    path = Path(json.loads(holder.stdout.readline())[0])
    assert manager.collect_garbage(max_idle=0, max_bytes=0, grace=0).removed == ()
    assert path.is_dir()
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=30)
    assert manager.collect_garbage(max_idle=0, grace=0).removed == (path.name,)


def test_assigned_to_a_process_that_outlives_us(manager: EnvironmentManager) -> None:
    """An environment assigned to a process stays until that process ends, without any lock of ours."""
    handle = _make(manager, "a", idle=7200)
    keeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    handle.assign(keeper.pid)
    assert manager.collect_garbage(max_idle=60).removed == ()
    keeper.communicate(b"\n", timeout=30)
    assert manager.collect_garbage(max_idle=60).removed == (handle.path.name,)
    assert list((manager.root / ".leases").iterdir()) == []


def test_assignment_is_not_fooled_by_a_reused_number(manager: EnvironmentManager) -> None:
    """A living process with the same number but another start time does not count."""
    handle = _make(manager, "a", idle=7200)
    note = manager.root / ".leases" / f"{handle.path.name}@{os.getpid()}"
    handle.assign(os.getpid())
    start, boot = note.read_text().split()
    note.write_text(f"{int(start) - 1} {boot}")
    assert manager.collect_garbage(max_idle=60).removed == (handle.path.name,)


def test_hold_after_collection_is_refused(manager: EnvironmentManager) -> None:
    """Who comes too late is told to ask again, instead of getting an empty folder."""
    handle = _make(manager, "late")
    manager.collect_garbage(max_idle=-1, grace=0)
    with pytest.raises(EnvironmentBuildError, match="call ensure"), handle.hold():
        pass


def test_trash_of_a_killed_collector_goes(manager: EnvironmentManager) -> None:
    """A folder that was renamed but not deleted is deleted next time, read-only folders in it too."""
    trash = manager.root / ".by-fingerprint" / ".trash-x"
    (trash / "locked").mkdir(parents=True)
    (trash / "locked" / "file").write_text("x")
    (trash / "locked").chmod(0o500)
    manager.collect_garbage()
    assert environments(manager) == []
