"""Every limit ends as its own reason, and the record says by what each was held."""

from __future__ import annotations

import os
import resource
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from debug_server.errors import CommandExecutionError, InvalidInputError, UnmetRequirementError
from debug_server.model import CommandStatus, ExitReason, Limits
from tests.running import Bench, carrying, eventually, program, python

MIB = 1 << 20
PATIENCE = (4.0, 30.0)  # a limit of time, and another one where the machine was too slow to write anything within it


def test_out_of_memory_is_read_from_the_counter(memory_bench: Bench) -> None:
    """A child killed for memory ends as out_of_memory, with the cgroup's counter as evidence."""
    result = memory_bench.run(program("hog.py", "memory", 256 * MIB), limits=Limits(memory_bytes=48 * MIB))
    assert result.exit_reason is ExitReason.OUT_OF_MEMORY
    assert result.status is CommandStatus.FAILED
    assert result.exit.evidence["counters"]["oom_kill"] >= 1
    assert result.exit.limit == "memory_bytes"
    assert result.exit.limits["memory_bytes"] == {"asked": 48 * MIB, "by": "cgroup"}
    assert 40 * MIB < (result.exit.peak_memory_bytes or 0) <= 48 * MIB


def test_a_shell_that_returns_0_does_not_hide_it(memory_bench: Bench) -> None:
    """A grandchild killed for memory below a shell that exits 0 is out_of_memory too."""
    hog = " ".join(program("hog.py", "memory", 256 * MIB))
    result = memory_bench.run(["sh", "-c", f"{hog} 2>/dev/null; exit 0"], limits=Limits(memory_bytes=48 * MIB))
    assert (result.exit_reason, result.exit_code) == (ExitReason.OUT_OF_MEMORY, 0)
    assert result.exit.evidence["counters"]["oom_kill"] >= 1


def test_enough_memory_is_not_out_of_memory(memory_bench: Bench) -> None:
    """Below the limit nothing happens and no counter is shown."""
    result = memory_bench.run(program("hog.py", "memory", 16 * MIB), limits=Limits(memory_bytes=128 * MIB))
    assert result.exit_reason is ExitReason.EXITED
    assert "counters" not in result.exit.evidence
    assert 16 * MIB < (result.exit.peak_memory_bytes or 0) < 128 * MIB


def test_idle_timeout(held: Bench) -> None:
    """Silence is measured from the last output; the reason, the limit and a note on the stream system say so."""
    for seconds in PATIENCE:
        argv = ["sh", "-c", "echo one; sleep 0.5; echo two; sleep 100"]
        result = held.run(argv, limits=Limits(idle_seconds=seconds))
        assert (result.exit_reason, result.exit.limit) == (ExitReason.IDLE_TIMED_OUT, "idle_seconds")
        log = held.log(result)
        if log["stdout"] == b"one\ntwo\n":
            break
    assert log["stdout"] == b"one\ntwo\n"
    assert seconds + 0.5 <= result.exit.wall_seconds < 60.0
    assert b"idle_timed_out" in log["system"]


def test_wall_timeout(held: Bench) -> None:
    """No exit code, the processes at the kill listed, what was written before kept."""
    for seconds in PATIENCE:
        result = held.run(["sh", "-c", "echo before; sleep 100"], timeout=seconds)
        if held.log(result)["stdout"]:
            break
    assert (result.exit_reason, result.exit.limit, result.exit_code) == (ExitReason.TIMED_OUT, "wall_seconds", None)
    assert any("sleep" in process["command"] for process in result.exit.evidence["processes_at_kill"])
    assert held.log(result)["stdout"] == b"before\n"
    assert result.exit.evidence["last_lines"] == ["before"]


@pytest.mark.parametrize("stay", [["--stay"], []], ids=["stays", "ends"])
@pytest.mark.parametrize("size", [50_000, 5 * MIB])
def test_output_cap(bench: Bench, size: int, stay: list[str]) -> None:
    """The log holds exactly as many bytes of the child as were allowed, and a note, even if the child is gone."""
    for cap in (1000, 40_000):
        result = bench.run(program("hog.py", "output", size, *stay), limits=Limits(output_bytes=cap))
        assert (result.exit_reason, result.exit.limit) == (ExitReason.LIMIT_EXCEEDED, "output_bytes")
        log = bench.log(result)
        assert len(log["stdout"]) + len(log["stderr"]) == cap
        assert (result.exit.stdout_bytes, result.exit.stderr_bytes) == (len(log["stdout"]), len(log["stderr"]))
        assert b"limit_exceeded" in log["system"]
        assert result.exit.evidence["dropped_bytes"] > 0


def test_output_up_to_the_cap_is_fine(bench: Bench) -> None:
    """Exactly the allowed number of bytes is not too many."""
    result = bench.run(program("hog.py", "output", 20_000), limits=Limits(output_bytes=20_000))
    assert result.exit_reason is ExitReason.EXITED
    assert (result.exit.stdout_bytes, result.exit.stderr_bytes) == (10_000, 10_000)


def test_cpu_seconds(held: Bench) -> None:
    """A process that computes for ever is ended for its CPU time."""
    result = held.run(program("hog.py", "cpu"), limits=Limits(cpu_seconds=1, wall_seconds=90))
    assert (result.exit_reason, result.exit.limit) == (ExitReason.LIMIT_EXCEEDED, "cpu_seconds")
    assert 0.7 <= result.exit.cpu_seconds < 30.0
    assert result.exit.limits["cpu_seconds"]["by"] in ("cgroup", "rlimit")


def test_cpu_seconds_are_the_whole_trees(memory_bench: Bench) -> None:
    """With a cgroup, many short processes spend one budget, in fractions of a second."""
    result = memory_bench.run(program("hog.py", "cpu_below"), limits=Limits(cpu_seconds=0.3, wall_seconds=90))
    assert (result.exit_reason, result.exit.limit) == (ExitReason.LIMIT_EXCEEDED, "cpu_seconds")


def test_file_size(held: Bench) -> None:
    """A file that grows too large is its own reason; the log itself is not bound by it."""
    limits = Limits(file_size_bytes=100_000)
    result = held.run(["sh", "-c", f"exec {' '.join(program('hog.py', 'file', 200_000))}"], limits=limits)
    assert (result.exit_reason, result.exit.limit) == (ExitReason.NONZERO_EXIT, None), "Python ignores SIGXFSZ"
    result = held.run(["sh", "-c", "exec dd if=/dev/zero of=big bs=50000 count=4 2>/dev/null"], limits=limits)
    assert (result.exit_reason, result.exit.limit) == (ExitReason.LIMIT_EXCEEDED, "file_size_bytes")
    assert (held.workspace / "big").stat().st_size == 100_000
    result = held.run(["sh", "-c", "head -c 500000 /dev/zero"], limits=limits)
    assert (result.exit_reason, result.exit.stdout_bytes) == (ExitReason.EXITED, 500_000)


def test_pids(memory_bench: Bench) -> None:
    """A tree that has started has exactly as many processes as were allowed, and the refusals are counted."""
    hog = memory_bench.start(program("hog.py", "processes", 50), limits=Limits(pids=7))
    (memory_bench.workspace / "go").touch()
    result = hog.result()
    assert memory_bench.log(result)["stdout"] == b"7\n"
    assert result.exit.evidence["counters"]["pids_max"] >= 1
    one = memory_bench.run(["true"], limits=Limits(pids=1))
    assert one.exit_reason is ExitReason.EXITED


def test_no_limit_of_a_command_holds_for_the_next(memory_bench: Bench) -> None:
    """The same groups serve commands with limits, other ones, none, and the first ones again."""
    capabilities = memory_bench.supervisor.pool.capabilities
    if capabilities.mechanism != "cgroup-v1" or "mount" not in capabilities.namespaces:
        pytest.skip("only version 1 groups that a command cannot write to serve several commands")
    bench = memory_bench
    none = _limits_in_force(bench, Limits())
    tight = Limits(memory_bytes=64 * MIB, pids=5, cpus=0.5)
    assert _limits_in_force(bench, tight) == [none[0], str(64 * MIB), "5", "50000"]
    assert _limits_in_force(bench, Limits(memory_bytes=256 * MIB)) == [none[0], str(256 * MIB), none[2], none[3]]
    assert _limits_in_force(bench, Limits(pids=9)) == [none[0], none[1], "9", none[3]]
    assert _limits_in_force(bench, tight) == [none[0], str(64 * MIB), "5", "50000"]
    assert _limits_in_force(bench, Limits()) == none
    assert bench.run(program("hog.py", "memory", 128 * MIB)).exit_reason is ExitReason.EXITED


def _limits_in_force(bench: Bench, limits: Limits) -> list[str]:
    """The name of a running command's groups, and the limits of memory, processes and CPU time in them."""
    started = bench.start(["cat"], stdin=True, limits=limits)
    groups = started.handle()["tree"]["groups"]
    files = [("memory", "memory.limit_in_bytes"), ("pids", "pids.max"), ("cpu", "cpu.cfs_quota_us")]
    texts = [Path(groups[controller], name).read_text().strip() for controller, name in files]
    with started.connect() as connection:
        connection.request({"op": "close_stdin"})
    assert "counters" not in started.result().exit.evidence
    return [Path(groups["pids"]).name, *texts]


def test_open_files(held: Bench) -> None:
    """A process sees the limit that was asked."""
    result = held.run(["sh", "-c", "ulimit -n"], limits=Limits(open_files=64))
    assert held.log(result)["stdout"] == b"64\n"
    assert result.exit.limits["open_files"] == {"asked": 64, "by": "rlimit"}


def test_more_open_files_than_may_be(held: Bench) -> None:
    """What is above the hard limit is set to it, the record says so, and ``require`` refuses it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("open files have no hard limit here")
    limits = Limits(open_files=hard + 1)
    result = held.run(["sh", "-c", "ulimit -n"], limits=limits)
    assert held.log(result)["stdout"] == f"{hard}\n".encode()
    assert result.exit.limits["open_files"] == {"asked": hard + 1, "by": "rlimit", "in_force": hard}
    with pytest.raises(UnmetRequirementError, match=f"hard limit of {hard}"):
        held.run(["true"], limits=limits, require=["open-files"])


def test_signal_death(held: Bench) -> None:
    """A command that ends itself by a signal is ``signaled``, with its number and no exit code."""
    result = held.run(["sh", "-c", "kill -SEGV $$"])
    assert (result.exit_reason, result.exit.signal, result.exit_code) == (ExitReason.SIGNALED, signal.SIGSEGV, None)


def test_exit_codes(held: Bench) -> None:
    """0 succeeds, everything else is nonzero_exit with its code."""
    for code in (0, 1, 127, 137, 255):
        result = held.run(["sh", "-c", f"exit {code}"])
        assert result.exit_code == code
        assert result.exit_reason is (ExitReason.NONZERO_EXIT if code else ExitReason.EXITED)


def test_what_it_cost_is_recorded(held: Bench) -> None:
    """Wall time, CPU time and peak memory of the tree, also when the work was done by grandchildren."""
    text = (
        "import time\nkept = bytearray(30 << 20)\nend = time.process_time() + 0.3\n"
        "while time.process_time() < end: pass"
    )
    result = held.run(["sh", "-c", '"$@"; true', "sh", *python(text)])
    assert result.exit.wall_seconds >= 0.3
    assert 0.25 <= result.exit.cpu_seconds < 3.0
    assert 25 * MIB < (result.exit.peak_memory_bytes or 0) < 200 * MIB
    again = held.run(["true"])
    assert again.exit.cpu_seconds < 0.2, "the next command of the same keeper pays for itself only"


def _script(bench: Bench, name: str, text: str, mode: int = 0o755) -> str:
    path = bench.workspace / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def _unstartable(bench: Bench) -> dict[str, tuple[list[str], str]]:
    return {
        "missing in PATH": (["no-such-program-anywhere"], "no-such-program-anywhere"),
        "missing path": ([str(bench.workspace / "nothing")], "nothing"),
        "not executable": ([_script(bench, "plain", "#!/bin/sh\n", 0o644)], "plain"),
        "a directory": ([str(bench.workspace)], "workspace"),
        "bad interpreter": ([_script(bench, "odd", "#!/no/such/interpreter\n")], "odd"),
        "no program at all": ([_script(bench, "noise", "\0\1\2")], "noise"),
    }


def test_spawn_failures(held: Bench) -> None:
    """A program that cannot be started is spawn_failed, the message names it, the row ends and the log is kept."""
    for what, (argv, named) in _unstartable(held).items():
        for limits in (Limits(), Limits(open_files=100)):  # two ways of starting a program
            with pytest.raises(CommandExecutionError, match=named):
                held.run(argv, limits=limits)
            command = held.store.commands.in_session(held.session.id)[-1]
            assert (command.status, command.exit_reason) == (CommandStatus.FAILED, ExitReason.SPAWN_FAILED), what
            assert command.exit_code is None
            assert command.log_path is not None and Path(command.log_path).exists()
    assert held.run(["true"]).exit_reason is ExitReason.EXITED


def test_a_bad_interpreter_is_named_as_such(held: Bench) -> None:
    """``No such file`` for a file that is there would send its reader the wrong way."""
    _script(held, "odd", "#!/no/such/interpreter\n")
    for argv in ([str(held.workspace / "odd")], ["odd"]):
        with pytest.raises(CommandExecutionError, match="the interpreter in its first line"):
            held.run(argv, env={"PATH": str(held.workspace)})


def test_a_wrong_cwd_is_said_before_there_is_a_row(bench: Bench) -> None:
    """Missing, a file, or outside the workspace: the message names it, and nothing is recorded."""
    (bench.workspace / "file").write_text("")
    for cwd in ("gone", "file", "..", "/", "/tmp"):
        with pytest.raises(InvalidInputError, match="cwd"):
            bench.run(["true"], cwd=Path(cwd))
    assert bench.store.commands.in_session(bench.session.id) == []


def test_an_unmet_requirement_is_said_before_there_is_a_row(make_bench: Callable[..., Bench]) -> None:
    """``require`` names a limit that only a cgroup can hold, where there is none: an error, and nothing started."""
    bench = make_bench("session")
    with pytest.raises(UnmetRequirementError, match="memory"):
        bench.run(["true"], limits=Limits(memory_bytes=64 * MIB), require=["memory"])
    with pytest.raises(UnmetRequirementError, match="cgroup"):
        bench.run(["true"], require=["cgroup"])
    with pytest.raises(InvalidInputError, match="no pids limit was given"):
        bench.run(["true"], require=["pids"])
    with pytest.raises(InvalidInputError, match="'wings' is not known"):
        bench.run(["true"], require=["wings"])
    assert bench.store.commands.in_session(bench.session.id) == []
    fine = bench.run(["true"], timeout=5, require=["timeout"])
    assert fine.exit.limits["wall_seconds"] == {"asked": 5, "by": "keeper"}


def test_what_cannot_be_held_is_said(make_bench: Callable[..., Bench]) -> None:
    """Without cgroups root's pids are bounded by nothing, and the record says so."""
    bench = make_bench("session")
    result = bench.run(["true"], limits=Limits(pids=100, memory_bytes=1 << 30, cpus=1))
    by = {name: item["by"] for name, item in result.exit.limits.items()}
    assert by == {"pids": None if os.geteuid() == 0 else "rlimit", "memory_bytes": "rlimit", "cpus": "affinity"}
    assert result.exit.mechanism == "session"


def test_an_honest_machine(held: Bench) -> None:
    """With one processor allowed, nproc, Python and OpenMP programs see one."""
    script = (
        'nproc; echo "$PYTHON_CPU_COUNT $OMP_NUM_THREADS"; "$1" -c "import os; print(len(os.sched_getaffinity(0)))"'
    )
    result = held.run(["sh", "-c", script, "sh", sys.executable], limits=Limits(cpus=1))
    assert held.log(result)["stdout"].split() == [b"1", b"1", b"1", b"1"]
    free = held.run(["sh", "-c", 'echo "[$PYTHON_CPU_COUNT]"'])
    assert held.log(free)["stdout"] == b"[]\n"


def test_a_cpu_quota_throttles(memory_bench: Bench) -> None:
    """A tenth of a processor: the same work takes several times as long, and the counter says why."""
    text = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
    result = memory_bench.run(python(text), limits=Limits(cpus=0.1))
    assert result.exit.wall_seconds > 0.3
    assert result.exit.evidence["counters"]["throttled"] >= 1


def test_files_of_a_command_are_private_enough(bench: Bench) -> None:
    """The usual umask: others may read what a command writes, and nobody but us its log's folder of handles."""
    bench.run(["sh", "-c", "echo x > made; umask"])
    assert stat.S_IMODE((bench.workspace / "made").stat().st_mode) == 0o644
    assert stat.S_IMODE(bench.settings.paths.owners_dir.stat().st_mode) == 0o700


def test_what_an_ended_child_wrote_beyond_the_cap_counts(bench: Bench) -> None:
    """The keeper learns of the surplus only after the child's end: the command has still gone over its limit."""
    fifo = bench.root / "gate"
    os.mkfifo(fifo)
    # A terminal holds about 12,000 unread bytes, and gives out about 4,000 at a time.
    text = "import os, sys\nos.read(os.open(sys.argv[1], os.O_RDONLY), 1)\nos.write(1, b'x' * 9000)"
    bench.dismiss_watchdog()
    started = bench.start(python(text, fifo), tty=True, limits=Limits(output_bytes=6000))
    keeper = started.handle()["keeper"]["pid"]
    os.kill(keeper, signal.SIGSTOP)
    fifo.write_bytes(b"go")
    eventually(lambda: not carrying(str(fifo)), what="the end of the child")
    os.kill(keeper, signal.SIGCONT)
    result = started.result()
    assert (result.exit_reason, result.exit.limit) == (ExitReason.LIMIT_EXCEEDED, "output_bytes")
    assert result.exit.stdout_bytes == 6000
