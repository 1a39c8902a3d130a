"""A command that fills the disk under the server: its end is recorded all the same, and the next ones' too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debug_server.model import CommandStatus
from debug_server.runner.spec import CommandSpec
from tests.engine.engines import await_running, running_engine
from tests.running import Bench
from tests.small_disk import fill_up, free_bytes, small_disk

MakeBench = Callable[..., Bench]
FILL = "until [ -e go ]; do sleep 0.02; done; cat /dev/zero > ballast 2> /dev/null; touch full; exit 7"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB."""
    with small_disk(tmp_path / "disk", mebibytes=48) as place:
        yield place


def _reserve(bench: Bench) -> Path:
    return bench.root / "data" / "metadata.db-reserve"


def test_ends_are_recorded_on_a_full_disk(disk: Path, make_bench: MakeBench) -> None:
    """Database, logs and workspace share the disk that a command fills: it and those that ran beside it have their
    ends while the disk is full, and the reserve is made again when there is room."""
    bench = make_bench(root=disk / "bench")
    with running_engine(bench) as engine:
        assert _reserve(bench).exists()
        beside = [
            engine.submit(
                session_id=bench.session.id,
                spec=CommandSpec(["sh", "-c", "until [ -e full ]; do sleep 0.02; done; exit 5"]),
                queue_key=f"k{number}",
            )
            for number in range(4)
        ]
        filling = engine.submit(session_id=bench.session.id, spec=CommandSpec(["sh", "-c", FILL]), queue_key="fill")
        await_running(bench, [*beside, filling])
        (bench.workspace / "go").touch()
        ended = engine.wait(filling.id, 100.0)
        assert ended.exit_code == 7
        fill_up(disk)
        assert [engine.wait(command.id, 100.0).exit_code for command in beside] == [5] * 4
        assert free_bytes(disk) < 1 << 20, "the disk is still full"
        (bench.workspace / "ballast").unlink()
        (disk / "rest").unlink()
        bench.store.keep_reserve()
        assert _reserve(bench).exists()
        again = engine.submit(session_id=bench.session.id, spec=CommandSpec(["true"]))
        assert engine.wait(again.id, 100.0).status is CommandStatus.SUCCEEDED
