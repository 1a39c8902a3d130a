"""The lifecycle of one command: its bytes, its watchers, its disk, its hooks."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from debug_server.errors import CommandExecutionError
from debug_server.model import CommandStatus, ExitReason, Limits, LogChunk
from debug_server.runner.environment import EnvironmentRequest
from debug_server.runner.settings import RunnerPaths
from debug_server.runner.spec import CommandSpec
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import open_store
from tests.running import Bench, Workspace, carrying, eventually, new_mark, python

# Writes seeded random pieces to both streams in a seeded order; a test makes the same pieces.
MIXED = (
    "import os, random, sys\n"
    "chosen = random.Random(int(sys.argv[1]))\n"
    "for _ in range(int(sys.argv[2])):\n"
    "    fd, data = chosen.choice((1, 2)), chosen.randbytes(chosen.choice((1, 2, 100, 5000, 70000)))\n"
    "    while data: data = data[os.write(fd, data):]\n"
)


def _mixed(seed: int, count: int) -> dict[str, bytes]:
    chosen = random.Random(seed)
    found = {1: bytearray(), 2: bytearray()}
    for _ in range(count):
        fd = chosen.choice((1, 2))
        found[fd] += chosen.randbytes(chosen.choice((1, 2, 100, 5000, 70000)))
    return {"stdout": bytes(found[1]), "stderr": bytes(found[2])}


def test_streams_are_kept_exactly(held: Bench) -> None:
    """Random bytes on both streams, interleaved: each stream's bytes in the log, and to observers, as written."""
    seen: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray(), "system": bytearray()}

    def watch(chunk: LogChunk) -> None:
        seen[chunk.stream] += chunk.data

    result = held.run(python(MIXED, 7, 200), observers=[watch])
    expected = _mixed(7, 200)
    log = held.log(result)
    assert {name: log[name] for name in expected} == expected
    assert {name: bytes(seen[name]) for name in expected} == expected
    assert (result.exit.stdout_bytes, result.exit.stderr_bytes) == (len(expected["stdout"]), len(expected["stderr"]))


def test_awkward_bytes(held: Bench) -> None:
    """NUL, invalid UTF-8, a split character, an empty stream, no last newline."""
    data = b"\0\xff\xfe\xc3\n\xe2\x82 half a euro, no newline"
    result = held.run(python(f"import os; os.write(1, {data!r})"))
    assert held.log(result) == {"stdout": data, "stderr": b"", "system": b""}
    assert result.log_path.read_bytes() == data


def test_64_mebibytes(bench: Bench) -> None:
    """Much output: the log has every byte, and the raw file is just those bytes."""
    text = (
        "import os\nblock = bytes(range(256)) * 256\nfor _ in range(1024):\n    data = block\n"
        "    while data: data = data[os.write(1, data):]"
    )
    result = bench.run(python(text))
    assert result.exit.stdout_bytes == 64 << 20
    digest = hashlib.sha256(bytes(range(256)) * (256 * 1024)).hexdigest()
    assert hashlib.sha256(result.log_path.read_bytes()).hexdigest() == digest


def test_a_raising_observer_harms_nobody(bench: Bench) -> None:
    """The command ends as it would, and the observer beside it hears everything."""
    heard = bytearray()

    def raising(chunk: LogChunk) -> None:
        raise ValueError("I do not like this chunk")

    result = bench.run(
        ["sh", "-c", "echo one; sleep 0.1; echo two"], observers=[raising, lambda c: heard.extend(c.data)]
    )
    assert result.exit_reason is ExitReason.EXITED
    assert bytes(heard) == b"one\ntwo\n"


def test_a_slow_observer_slows_nobody(bench: Bench) -> None:
    """While it sleeps, the command writes to its end and its row has its terminal state."""
    release = threading.Event()
    slow = bench.start(["sh", "-c", "seq 100000"], observers=[lambda _: release.wait(100)])
    try:
        eventually(lambda: _terminal(bench, slow.command.id), what="the end of the row")
    finally:
        release.set()
    assert slow.result().exit_reason is ExitReason.EXITED


def _terminal(bench: Bench, command_id: int) -> object:
    command = bench.store.commands.get(command_id)
    return command if command.status.terminal else None


def test_a_wrapper_runs_the_command_under_another_program(held: Bench) -> None:
    """The spawn wrapper stands before the command's own arguments."""
    result = held.run(["sh", "-c", 'echo "[$WRAPPED]"'], wrapper=["env", "WRAPPED=yes"])
    assert held.log(result)["stdout"] == b"[yes]\n"
    assert held.store.commands.get(result.command_id).argv == ("sh", "-c", 'echo "[$WRAPPED]"')


def test_the_hook_sees_the_tree_before_it_is_ended(held: Bench) -> None:
    """The pre-kill program gets the pids, they are alive, and what it says is on the stream system."""
    hook = ["sh", "-c", 'for pid in $DEBUG_SERVER_PIDS; do kill -0 $pid && echo "alive"; done; echo oops >&2']
    mark = f"1000.{random.SystemRandom().randrange(10**9)}"
    started = held.start(["sh", "-c", f"sleep {mark}; true"], pre_kill=hook)
    eventually(lambda: len(carrying(mark)) == 2, what="a shell and what it runs")
    held.supervisor.pipeline.cancel(started.command.id)
    result = started.result()
    assert result.exit_reason is ExitReason.CANCELLED
    log = held.log(result)
    assert log["system"].count(b"alive\n") == 2
    assert b"oops\n" in log["system"]
    assert log["stdout"] == log["stderr"] == b""


def test_a_hook_is_waited_for_even_if_the_command_ends(bench: Bench) -> None:
    """The command ends by itself while its hook works: what the hook says is kept, and nothing of it stays."""
    mark = new_mark("hook")
    go = bench.workspace / "go"
    hook = python("import sys, time; open(sys.argv[1], 'w').close(); time.sleep(0.6); print('thorough')", go, mark)
    result = bench.run(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"], timeout=0.3, pre_kill=hook)
    assert result.exit_reason is ExitReason.TIMED_OUT
    assert b"thorough" in bench.log(result)["system"]
    assert not carrying(mark)


def test_a_hook_that_hangs_is_ended_with_its_children(bench: Bench) -> None:
    """After its time the ladder goes on without it."""
    mark = new_mark("hang")
    hang = " ".join(python("'import time; time.sleep(1000)'", mark))
    began = time.monotonic()
    result = bench.run(["sleep", "1000"], timeout=0.2, pre_kill=["sh", "-c", f"{hang} & {hang}; true"])
    assert result.exit_reason is ExitReason.TIMED_OUT
    assert time.monotonic() - began < 60.0
    eventually(lambda: not carrying(mark), what="the end of the hook's tree")


def test_a_hook_that_is_not_there_stops_nothing(bench: Bench) -> None:
    """The ladder goes on, and the log says so."""
    result = bench.run(["sleep", "1000"], timeout=0.2, pre_kill=["no-such-hook"])
    assert result.exit_reason is ExitReason.TIMED_OUT
    assert b"no-such-hook" in bench.log(result)["system"]


@pytest.mark.parametrize("folder", ["logs", "keepers"])
def test_an_unwritable_folder_ends_the_row(bench: Bench, folder: str) -> None:
    """A file stands where a folder should be: a clear error, a failed row, and nothing was run."""
    root = bench.settings.paths.artifacts_root
    root.mkdir(parents=True)
    (root / folder).write_text("in the way")
    with pytest.raises(CommandExecutionError, match=folder):
        bench.run(["touch", "ran"])
    (command,) = bench.store.commands.in_session(bench.session.id)
    assert (command.status, command.exit_reason) == (CommandStatus.FAILED, ExitReason.SPAWN_FAILED)
    assert command.exit is not None and folder in command.exit.message
    assert not (bench.workspace / "ran").exists()
    (root / folder).unlink()


def test_what_nobody_thought_of_ends_the_row_too(bench: Bench) -> None:
    """Files of a workspace that make the preparation fail in no way of ours, here a thousand that include each other,
    are the command's end: it does not stay under way for ever."""
    names = [f"r{number}.txt" for number in range(1500)]
    for name, following in pairwise(names):
        (bench.workspace / name).write_text(f"-r {following}\n")
    supervisor = WorkerSupervisor.from_settings(metadata_store=bench.store, settings=bench.settings)
    request = EnvironmentRequest("e", [bench.workspace / names[0]], project_root=bench.workspace)
    with supervisor, pytest.raises(CommandExecutionError, match="could not be prepared: RecursionError"):
        supervisor.run_command(
            bench.session.id, CommandSpec(["touch", "ran"]), Workspace(bench.workspace), env_request=request
        )
    (command,) = bench.store.commands.in_session(bench.session.id)
    assert (command.status, command.exit_reason) == (CommandStatus.FAILED, ExitReason.SPAWN_FAILED)
    assert not (bench.workspace / "ran").exists()


# -- full disks ----------------------------------------------------------------------------------------------------


@contextmanager
def _disk(place: Path, size: str) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small filesystem")
    place.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(place)]
    mounted = subprocess.run(argv, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of one mebibyte."""
    with _disk(tmp_path / "disk", "1m") as place:
        yield place


@pytest.fixture
def disk_of_200_mebibytes(tmp_path: Path) -> Iterator[Path]:
    """One whose hundredth part is more than a keeper writes between two looks at it."""
    with _disk(tmp_path / "disk", "200m") as place:
        yield place


def _on(disk: Path, make_bench: Callable[..., Bench], what: str) -> Bench:
    """A bench with one of its folders on that disk."""
    bench = make_bench()
    root = bench.settings.paths.artifacts_root
    logs = disk if what == "logs" else root / "logs"
    artifacts = disk if what == "artifacts" else root
    paths = RunnerPaths(artifacts, logs, root / "envs", root / "patches")
    object.__setattr__(bench.settings, "paths", paths)
    bench.supervisor.close()
    bench.supervisor = bench.new_supervisor()
    return bench


def test_a_full_disk_blocks_the_child_until_there_is_room(small_disk: Path, make_bench: Callable[..., Bench]) -> None:
    """The child waits, its silence is not held against it, and every byte is there in the end."""
    bench = _on(small_disk, make_bench, "logs")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(700 << 10))
    text = "import os\ndata = bytes(range(256)) * 2400\nwhile data: data = data[os.write(1, data):]"
    started = bench.start(python(text), limits=Limits(idle_seconds=4))
    log = Path(str(started.command.log_path))
    eventually(lambda: log.exists() and log.stat().st_size > 200 << 10, what="a full disk")
    time.sleep(4.5)  # longer than the idle limit
    assert bench.store.commands.get(started.command.id).status is CommandStatus.RUNNING
    ballast.unlink()
    result = started.result()
    assert result.exit_reason is ExitReason.EXITED
    assert log.read_bytes() == bytes(range(256)) * 2400


def test_a_disk_that_stays_full_is_a_limit(small_disk: Path, make_bench: Callable[..., Bench]) -> None:
    """After a while the command is ended for it; the record, in another place, says disk."""
    bench = _on(small_disk, make_bench, "logs")
    result = bench.run(["sh", "-c", "head -c 3000000 /dev/zero; sleep 1000"])
    assert (result.exit_reason, result.exit.limit) == (ExitReason.LIMIT_EXCEEDED, "disk")
    assert result.exit.evidence["dropped_bytes"] > 0
    (small_disk / "1" / f"command-{result.command_id}.log").unlink()


def test_an_endless_writer_leaves_space_free(disk_of_200_mebibytes: Path, make_bench: Callable[..., Bench]) -> None:
    """It ends for want of space while others still have some: half of the reserve at least."""
    bench = _on(disk_of_200_mebibytes, make_bench, "logs")
    result = bench.run(["cat", "/dev/zero"])
    assert (result.exit_reason, result.exit.limit) == (ExitReason.LIMIT_EXCEEDED, "disk")
    disk = os.statvfs(disk_of_200_mebibytes)
    assert disk.f_bavail >= disk.f_blocks // 200
    result.log_path.unlink()


def test_what_an_ended_child_wrote_waits_for_room_too(small_disk: Path, make_bench: Callable[..., Bench]) -> None:
    """The child is gone, its last bytes are in the pipe: they are not dropped because nobody is blocked by them."""
    bench = _on(small_disk, make_bench, "logs")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(932 << 10))  # room for one piece and not for two
    mark = new_mark("gone")
    waits = "while not os.path.exists('go'): time.sleep(0.01)"
    started = bench.start(
        python(f"import os, time\nos.write(1, b'x' * 65536)\n{waits}\nos.write(1, b'y' * 65536)", mark)
    )
    log = Path(str(started.command.log_path))
    eventually(lambda: log.stat().st_size == 65536, what="the first piece")
    (bench.workspace / "go").touch()
    eventually(lambda: not carrying(mark), what="the end of the child")
    time.sleep(0.5)  # longer than the keeper takes to try again
    assert bench.store.commands.get(started.command.id).status is CommandStatus.RUNNING
    ballast.unlink()
    result = started.result()
    assert result.exit_reason is ExitReason.EXITED
    assert log.read_bytes() == b"x" * 65536 + b"y" * 65536


def test_the_exit_record_is_tried_again(small_disk: Path, make_bench: Callable[..., Bench]) -> None:
    """No room for the record when the command ends: the one who waits is told, and the row has its end."""
    bench = _on(small_disk, make_bench, "artifacts")
    started = bench.start(["sh", "-c", "echo done; while [ ! -e go ]; do sleep 0.02; done"])
    started.await_output(b"done")
    (small_disk / "ballast").write_bytes(bytes(0))
    with (small_disk / "ballast").open("ab", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            pass
    (bench.workspace / "go").touch()
    result = started.result()
    assert result.exit_reason is ExitReason.EXITED
    assert bench.store.commands.get(result.command_id).status is CommandStatus.SUCCEEDED
    (small_disk / "ballast").unlink()
    bench.supervisor.close()
    eventually(lambda: not list(small_disk.glob("keepers/*")), what="an empty folder of handles")


def test_the_log_of_a_running_command_stays_in_its_place(bench: Bench) -> None:
    """Another store over the same folder has the same numbers: its command is refused, with a log of its own, and the
    running one's is neither moved nor written to."""
    started = bench.start(["sh", "-c", "echo mine; read line; echo $line"], log_name="command", stdin=True)
    started.await_output(b"mine\n")
    log_path = Path(str(started.command.log_path))
    with open_store(bench.root / "other.db") as store:
        session = store.sessions.create()
        supervisor = WorkerSupervisor(
            metadata_store=store, paths=bench.settings.paths, environment_manager=None, settings=bench.settings
        )
        with pytest.raises(CommandExecutionError, match="the log of a running command of another store"):
            supervisor.run_command(session.id, CommandSpec(["echo", "theirs"]), Workspace(bench.workspace))
        (refused,) = store.commands.in_session(session.id)
        supervisor.close()
    assert (refused.id, refused.session_id) == (started.command.id, started.command.session_id)
    assert refused.exit is not None and refused.exit.reason is ExitReason.SPAWN_FAILED
    assert refused.log_path != str(log_path) and b"another store" in Path(str(refused.log_path)).read_bytes()
    with started.connect() as connection:
        connection.write_stdin("1", b"yours\n")
    assert bench.log(started.result())["stdout"] == b"mine\nyours\n"
    assert not list(log_path.parent.glob("*.old"))
