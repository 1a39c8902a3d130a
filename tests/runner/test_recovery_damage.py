"""Recovery of commands whose run directories were damaged or removed while no server lived."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from debug_server.engine import LocalEngine
from debug_server.model import Command, CommandStatus, ExitReason
from debug_server.runner.keeper.rundir import HANDLE
from debug_server.runner.recovery import Adopted, recover
from debug_server.runner.run_dirs import run_dir_for
from debug_server.runner.spec import CommandSpec
from tests.running import Bench, carrying, eventually, read_log


@pytest.fixture
def waits() -> list[str]:
    """A command that can be recognised and runs until the file ``go`` is there."""
    return ["sh", "-c", "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo over", f"waits-{uuid4()}"]


def _abandoned(bench: Bench, argv: list[str], count: int = 1) -> list[Command]:
    """Commands that run, and whose owner is dead."""
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    engine.start()
    added = [
        engine.submit(session_id=bench.session.id, spec=CommandSpec(argv), queue_key=str(number))
        for number in range(count)
    ]
    for command in added:
        eventually(partial(_runs, bench, command), what="a running command")
    engine.stop()
    bench.supervisor.close()
    bench.supervisor = bench.new_supervisor()
    return [_row(bench, command) for command in added]


def _row(bench: Bench, command: Command) -> Command:
    return bench.store.commands.get(command.id)


def _runs(bench: Bench, command: Command) -> bool:
    return _row(bench, command).status is CommandStatus.RUNNING


def _run_dir(bench: Bench, command: Command) -> Path:
    return run_dir_for(bench.settings.paths.keepers_dir, command.id, command.attempt)


def _recover(bench: Bench) -> list[Adopted]:
    return recover(bench.store, bench.settings.paths, bench.supervisor.owner)


def _follow(bench: Bench, adopted: list[Adopted]) -> list[ExitReason]:
    pipeline = bench.supervisor.pipeline
    return [pipeline.wait_for_adopted(item.command, item.running, item.log_path).exit_reason for item in adopted]


@contextmanager
def _in_the_way(run_dir: Path) -> Iterator[None]:
    """A file stands where the run directory was."""
    aside = run_dir.with_name(f"aside-{run_dir.name}")
    run_dir.rename(aside)
    run_dir.touch()
    yield
    run_dir.unlink()
    aside.rename(run_dir)


@pytest.mark.parametrize("damage", ["", '{"keeper": {"pid', "\x00" * 64])
def test_a_damaged_handle_is_read_from_the_row(bench: Bench, waits: list[str], damage: str) -> None:
    """The command is carried on as if nothing had happened."""
    (command,) = _abandoned(bench, waits)
    (_run_dir(bench, command) / HANDLE).write_text(damage)
    adopted = _recover(bench)
    assert [item.command.id for item in adopted] == [command.id]
    (bench.workspace / "go").touch()
    assert _follow(bench, adopted) == [ExitReason.EXITED]
    assert read_log(Path(str(command.log_path)))["stdout"] == b"begun\nover\n"


def test_one_that_cannot_be_recovered_harms_no_other(bench: Bench, waits: list[str]) -> None:
    """It stays its dead owner's, the others are carried on, and the next recovery that can has it too."""
    first, second = _abandoned(bench, waits, 2)
    with _in_the_way(_run_dir(bench, first)):
        adopted = _recover(bench)
        assert [item.command.id for item in adopted] == [second.id]
        assert (_row(bench, first).status, _row(bench, first).owner) == (CommandStatus.RUNNING, first.owner)
    adopted += _recover(bench)
    assert [item.command.id for item in adopted] == [second.id, first.id]
    (bench.workspace / "go").touch()
    assert _follow(bench, adopted) == [ExitReason.EXITED, ExitReason.EXITED]


def test_a_removed_run_directory_does_not_save_the_tree(held: Bench, waits: list[str]) -> None:
    """The keeper cannot be reached any more: the row's copy of its handle finds the tree, which is ended; lost."""
    (command,) = _abandoned(held, waits)
    shutil.rmtree(_run_dir(held, command))
    assert _follow(held, _recover(held)) == [ExitReason.LOST]
    assert (_row(held, command).status, _row(held, command).exit_reason) == (CommandStatus.FAILED, ExitReason.LOST)
    eventually(lambda: not carrying(waits[-1]), what="the end of its tree")
