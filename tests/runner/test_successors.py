"""A keeper and its groups serve one command after another: nothing of one shows in the next."""

from __future__ import annotations

from pathlib import Path

from debug_server.model import ExitReason, Limits
from debug_server.runner.directory_placement import spread_subdirectories
from tests.running import Bench, program, python

MIB = 1 << 20
TIGHT = Limits(memory_bytes=48 * MIB, pids=8, cpus=0.5)


def test_limits_end_with_their_command(memory_bench: Bench) -> None:
    """After a command with limits one without has more memory, processes and cpu than those."""
    assert memory_bench.run(["true"], limits=TIGHT).exit_reason is ExitReason.EXITED
    assert memory_bench.run(program("hog.py", "memory", 96 * MIB)).exit_reason is ExitReason.EXITED
    many = memory_bench.run(["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.05 & done; wait"])
    assert (many.exit_reason, many.exit.limits) == (ExitReason.EXITED, {})
    busy = memory_bench.run(python("sum(range(10_000_000))"))
    assert "counters" not in busy.exit.evidence


def test_limits_that_a_command_sets_itself_end_with_it(memory_bench: Bench) -> None:
    """One that starts containers may write to its groups: what it writes there holds for no other command."""
    started = memory_bench.start(["sh", "-c", 'read path; echo 3 > "$path"; cat "$path"'], stdin=True, containers=True)
    groups = started.handle()["tree"]["groups"]
    limit = f"{groups.get('pids', groups.get(''))}/pids.max"
    with started.connect() as connection:
        connection.write_stdin("path", f"{limit}\n".encode())
    assert memory_bench.log(started.result())["stdout"] == b"3\n"
    for _ in range(4):  # whichever of the waiting keepers has it
        after = memory_bench.run(["sh", "-c", "for i in 1 2 3 4 5; do sleep 0.01 & done; wait"])
        assert (after.exit_reason, memory_bench.log(after)["stderr"]) == (ExitReason.EXITED, b"")


def test_what_was_used_is_the_commands_own(memory_bench: Bench) -> None:
    """Memory, pages of files that stay, and cpu time of one command are not counted for the next."""
    written = f"open({str(memory_bench.workspace / 'kept')!r}, 'wb').write(bytes(40 << 20))"
    first = memory_bench.run(python(f"{written}; sum(range(10_000_000))"))
    for _ in range(4):  # whichever of the waiting keepers has it
        after = memory_bench.run(["true"])
        assert (first.exit.peak_memory_bytes or 0) > 40 * MIB > 8 * MIB > (after.exit.peak_memory_bytes or 0)
        assert after.exit.cpu_seconds < first.exit.cpu_seconds / 2


def test_a_kill_for_memory_is_told_of_one_command(memory_bench: Bench) -> None:
    """The counter that proves one command's end is no evidence against those after it."""
    killed = memory_bench.run(program("hog.py", "memory", 256 * MIB), limits=Limits(memory_bytes=48 * MIB))
    assert killed.exit_reason is ExitReason.OUT_OF_MEMORY
    for _ in range(4):
        after = memory_bench.run(["true"], limits=TIGHT)
        assert after.exit_reason is ExitReason.EXITED
        assert "counters" not in after.exit.evidence


def test_a_place_that_knows_no_such_wish_is_left_alone(tmp_path: Path) -> None:
    """Spreading what is no directory, or twice, does nothing that anybody could see."""
    spread_subdirectories(tmp_path / "missing")
    (tmp_path / "file").touch()
    spread_subdirectories(tmp_path / "file")
    for _ in range(2):
        spread_subdirectories(tmp_path)
    (tmp_path / "below").mkdir()
