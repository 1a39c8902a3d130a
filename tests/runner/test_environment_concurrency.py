"""Many builders at once, and builders that are killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environment import EnvironmentHandle, EnvironmentManager
from tests.runner.environment_support import (
    Recording,
    ended,
    ensure_elsewhere,
    environments,
    hook,
    is_alive,
    wait_for,
)
from tests.running import eventually


def _spec(command: str, root: Path, **more: object) -> dict[str, object]:
    return {"name": "hooked", "metadata": {"builder": "hook", "hook": command}, "root": str(root), **more}


def test_eight_processes_build_once(tmp_path: Path) -> None:
    """Eight processes that ask at once get one environment, built once."""
    command = f'echo built >> {tmp_path}/builds; sleep 0.5; echo done > "$DEBUG_SERVER_ENV_PATH/whole"'
    asking = [ensure_elsewhere(tmp_path / "envs", _spec(command, tmp_path)) for _ in range(8)]
    answers = [json.loads(process.communicate(timeout=90)[0]) for process in asking]
    assert (tmp_path / "builds").read_text() == "built\n"
    assert len({path for path, _ in answers}) == 1
    assert sorted(hit for _, hit in answers) == [False] + [True] * 7
    assert (Path(answers[0][0]) / "whole").exists()


def test_eight_threads_force_together(tmp_path: Path) -> None:
    """Of forced requests that come together, those that wait take a build that began after they asked."""
    command = f"echo built >> {tmp_path}/builds; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    manager = EnvironmentManager(tmp_path / "envs")
    logs = [Recording() for _ in range(8)]

    def ask(number: int) -> EnvironmentHandle:
        return manager.ensure(hook(command, name=f"n{number}", root=tmp_path), force=True, log=logs[number])

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, number) for number in range(8)]
        try:
            eventually(lambda: sum("waiting for another" in log.text for log in logs) == 7, what="seven that wait")
        finally:
            (tmp_path / "go").touch()
        handles = [handle.result() for handle in asked]
    assert len((tmp_path / "builds").read_text().split()) <= 2
    assert all(handle.path.is_dir() for handle in handles)


def test_waiting_is_told_and_has_an_end(tmp_path: Path) -> None:
    """Who waits hears why and for whom, and gives up at the deadline; the builder is not disturbed."""
    command = f"echo $$ > {tmp_path}/pid; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    builder = ensure_elsewhere(tmp_path / "envs", _spec(command, tmp_path))
    wait_for(tmp_path / "pid")
    log = Recording()
    with pytest.raises(EnvironmentBuildError, match=rf"process {builder.pid}\b.*not done within 0\.3 s"):
        EnvironmentManager(tmp_path / "envs", build_timeout=0.3).ensure(hook(command, root=tmp_path), log=log)
    assert f"waiting for another builder of this environment (process {builder.pid})" in log.text
    (tmp_path / "go").touch()
    assert json.loads(builder.communicate(timeout=30)[0])[1] is False


def test_killed_builder_leaves_nothing_that_is_served(tmp_path: Path) -> None:
    """After kill -9 in the middle, the next builder ends the orphaned tool, removes its folder and builds whole."""
    command = (
        'echo half > "$DEBUG_SERVER_ENV_PATH/half";'
        f"if [ ! -e {tmp_path}/tool ]; then echo $$ > {tmp_path}/tool; sleep 600; fi;"
        'rm "$DEBUG_SERVER_ENV_PATH/half"; echo whole > "$DEBUG_SERVER_ENV_PATH/whole"'
    )
    builder = ensure_elsewhere(tmp_path / "envs", _spec(command, tmp_path))
    tool = int(wait_for(tmp_path / "tool"))
    builder.send_signal(signal.SIGKILL)
    builder.communicate(timeout=30)
    assert is_alive(tool)
    manager = EnvironmentManager(tmp_path / "envs")
    left = environments(manager)
    assert len(left) == 1
    handle = manager.ensure(hook(command, root=tmp_path))
    assert handle.build is not None
    assert not handle.build.hit
    assert ended(tool)
    assert environments(manager) == [handle.path.name] != left
    assert sorted(path.name for path in handle.path.iterdir() if path.name[0] != ".") == ["whole"]


def test_killed_builder_is_collected(tmp_path: Path) -> None:
    """What a killed builder left goes with the next collection, even if nobody asks for that environment again."""
    command = f"echo $$ > {tmp_path}/tool; sleep 600"
    builder = ensure_elsewhere(tmp_path / "envs", _spec(command, tmp_path))
    tool = int(wait_for(tmp_path / "tool"))
    manager = EnvironmentManager(tmp_path / "envs")
    assert manager.collect_garbage(max_idle=0, grace=0).removed == ()
    builder.send_signal(signal.SIGKILL)
    builder.communicate(timeout=30)
    assert len(manager.collect_garbage().removed) == 1
    assert ended(tool)
    assert environments(manager) == []
    assert list((tmp_path / "envs" / ".tmp").iterdir()) == []


def test_kill_at_any_moment(tmp_path: Path) -> None:
    """Builders killed at moments from their first step to after their last: whatever is served afterwards is whole."""
    command = 'for i in 1 2 3 4 5 6 7 8; do echo $i > "$DEBUG_SERVER_ENV_PATH/$i"; done'
    manager = EnvironmentManager(tmp_path / "envs")
    manager.ensure(hook(command, root=tmp_path))
    for step in range(12):
        before = environments(manager)
        builder = ensure_elsewhere(tmp_path / "envs", _spec(command, tmp_path, force=True))
        while environments(manager) == before and builder.poll() is None:
            time.sleep(0.001)
        time.sleep(step * 0.002)  # the moment of the kill is what varies
        builder.send_signal(signal.SIGKILL)
        builder.communicate(timeout=30)
        handle = manager.ensure(hook(command, root=tmp_path))
        assert {path.name for path in handle.path.iterdir()} >= {str(number) for number in range(1, 9)}
        assert manager.verify(handle.fingerprint or "") == {}
    manager.collect_garbage(grace=0)
    assert environments(manager) == [handle.path.name]


def test_name_moves_while_others_read_it(tmp_path: Path) -> None:
    """While forced builds move a name, it always leads to a folder."""
    manager = EnvironmentManager(tmp_path / "envs")
    request = hook("true", root=tmp_path)
    manager.ensure(request)
    done = threading.Event()
    missing: list[str] = []

    def look() -> None:
        while not done.is_set():
            if not os.path.isdir(manager.root / "hooked"):
                missing.append("gone")

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(10):
        manager.ensure(request, force=True)
    done.set()
    reader.join()
    assert missing == []
