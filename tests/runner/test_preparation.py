"""What happens before the start of a command, with a real environment."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from debug_server.runner import environment as environments_module
from debug_server.runner.cancellation import Cancellation, StartCancelledError
from debug_server.runner.environment import EnvironmentHandle, EnvironmentManager, EnvironmentRequest
from debug_server.runner.preparation import Preparation, StageLog
from tests.running import eventually


@dataclass
class Leased:
    """A lease of a workspace that was used with other packages before."""

    path: Path
    lease_token: str
    needs_dependency_sync: bool = True


@pytest.fixture
def manager(tmp_path: Path) -> EnvironmentManager:
    """A manager of its own."""
    return EnvironmentManager(tmp_path / "envs")


@pytest.fixture
def preparation(tmp_path: Path, manager: EnvironmentManager) -> Preparation:
    """Of a process that is about to run commands."""
    return Preparation(environments=lambda: manager, patches_dir=tmp_path / "patches", base_env={"PATH": "/usr/bin"})


def _prepare(preparation: Preparation, lease: Leased) -> EnvironmentHandle:
    with ExitStack() as stack:
        log = StageLog(lease.path / "log")
        stack.callback(log.close)
        handle, _ = preparation.environment(EnvironmentRequest("e"), lease, log, stack, Cancellation())
        assert handle is not None
        return handle


def test_dependencies_are_synchronised_once_per_lease(tmp_path: Path, preparation: Preparation) -> None:
    """The first command of a lease builds its environment anew, the others use what it has built."""
    first = _prepare(preparation, Leased(tmp_path, "one"))
    assert _prepare(preparation, Leased(tmp_path, "one")) == first
    assert _prepare(preparation, Leased(tmp_path, "two")) != first
    preparation.close()


def test_nobody_waits_for_bytecode(
    tmp_path: Path, preparation: Preparation, manager: EnvironmentManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the process ends the compilation; what it had not done is done while a later command runs."""
    with monkeypatch.context() as patched:
        begun = tmp_path / "begun"
        patched.setattr(environments_module, "_COMPILE", f"open({str(begun)!r}, 'w'); import time; time.sleep(600)")
        handle = _prepare(preparation, Leased(tmp_path, "one"))
        eventually(begun.exists, what="a compilation")
        preparation.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "bytecode"]
    assert not manager.has_bytecode(handle) and manager.verify(handle.fingerprint or "") == {}
    later = Preparation(environments=lambda: manager, patches_dir=tmp_path / "patches", base_env={})
    _prepare(later, Leased(tmp_path, "one", needs_dependency_sync=False))
    eventually(lambda: manager.has_bytecode(handle), what="its end in a later run")
    later.close()


def test_a_cancelled_compilation_harms_nothing(tmp_path: Path, manager: EnvironmentManager) -> None:
    """The environment stays closed and whole, and the next call completes it."""
    handle = manager.ensure(EnvironmentRequest("e"))
    cancelled = Cancellation()
    cancelled.request("enough")
    with pytest.raises(StartCancelledError):
        manager.compile_bytecode(handle, cancellation=cancelled)
    assert manager.verify(handle.fingerprint or "") == {}
    assert not [path for path in handle.path.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o222]
    manager.compile_bytecode(handle)
    assert manager.has_bytecode(handle)
    manager.collect_garbage(max_idle=0, grace=0)
    assert not list((manager.root / ".seals").glob("*"))
