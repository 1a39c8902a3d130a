"""``debug-server run``: streams, statuses, interruption, and what is left."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from debug_server.model import Command, CommandStatus, ExitReason
from debug_server.store import open_store
from tests.running import ROOT, eventually, missing_mechanism, program

pytestmark = pytest.mark.usefixtures("nothing_left")

RUN = [sys.executable, "-W", "error", "-m", "debug_server", "run"]
SECONDS = 100.0  # for what does end


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _run(place: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    given = options if "input" in options else {"stdin": subprocess.DEVNULL, **options}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*RUN, *arguments],
        cwd=place,
        capture_output=True,
        timeout=SECONDS,
        check=False,
        **{"env": _env(), **given},
    )


@contextmanager
def _started(place: Path, *arguments: str, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    with subprocess.Popen([*RUN, *arguments], cwd=place, env=_env(), **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def _commands(place: Path) -> list[Command]:
    with open_store(f"sqlite:///{place}/.artifacts/data/metadata.db") as store:
        return [command for session in store.sessions.page() for command in store.commands.in_session(session.id)]


STATUSES = [
    ([], ["true"], 0, "exited"),
    ([], ["sh", "-c", "exit 3"], 3, "nonzero_exit"),
    ([], ["sh", "-c", "exit 124"], 124, "nonzero_exit"),
    ([], ["sh", "-c", "kill -SEGV $$"], 139, "signaled"),
    (["--timeout", "0.3"], ["sleep", "60"], 124, "timed_out"),
    (["--idle-timeout", "0.3"], ["sleep", "60"], 124, "idle_timed_out"),
    (["--output", "100"], ["sh", "-c", "yes"], 123, "limit_exceeded"),
    ([], ["no-such-program"], 127, "spawn_failed"),
]


@pytest.mark.parametrize(
    ("options", "argv", "status", "reason"), STATUSES, ids=[item[3] + str(item[2]) for item in STATUSES]
)
def test_status_and_reason(tmp_path: Path, options: list[str], argv: list[str], status: int, reason: str) -> None:
    """The exit status is the documented one, and the last line on stderr names the reason."""
    done = _run(tmp_path, *options, "--", *argv)
    assert done.returncode == status
    assert done.stderr.decode().splitlines()[-1].startswith(f"[debug-server] {reason}: ")


NOT_UNDERSTOOD = [
    (["--time-out", "5", "--", "true"], 2, "--time-out"),
    (["--bogus=1", "true"], 2, "--bogus"),
    (["--commit", "main", "--", "true"], 2, "--commit needs --repo"),
    (["--repo", ".", "--patch", "/dev/zero", "--", "true"], 2, "more than 16 MiB"),
    (["--cpus", "0.000001", "--", "true"], 2, "at least 0.01"),
    (["--repo", ".", "--patch", "no.patch", "--", "true"], 2, "patch 'no.patch' cannot be read"),
    (["--memory", "1", "--", "true"], 2, "--memory 1 is too small to start any program: use at least 4M"),
    (["--env", "=1", "--", "true"], 2, "--env '=1' must be NAME or NAME=VALUE"),
    (["--env", "NOT_SET_HERE", "--", "true"], 2, "--env NOT_SET_HERE: this variable is not set"),
]


@pytest.mark.parametrize(("arguments", "status", "said"), NOT_UNDERSTOOD)
def test_what_is_not_understood_runs_nothing(tmp_path: Path, arguments: list[str], status: int, said: str) -> None:
    """A misspelt option is no program, one that would have no effect is refused, and there is no row of it."""
    done = _run(tmp_path, *arguments)
    assert (done.returncode, said in done.stderr.decode()) == (status, True)
    assert not (tmp_path / ".artifacts" / "logs").exists()


def test_what_follows_the_program_is_the_programs(tmp_path: Path) -> None:
    """Also where it looks like an option of ours, with and without ``--``; and the program sees the cores there are."""
    assert _run(tmp_path, "echo", "--timeout", "5", "-h", "--help").stdout == b"--timeout 5 -h --help\n"
    told = _run(tmp_path, "--cpus", "1000", "--", "sh", "-c", "echo $OMP_NUM_THREADS -- $PYTHON_CPU_COUNT").stdout
    cores = len(os.sched_getaffinity(0))
    assert told == f"{cores} -- {cores}\n".encode()


def test_a_command_gets_the_variables_that_are_named(tmp_path: Path) -> None:
    """--env with a value sets one, without a value it passes ours on; others of ours are not seen."""
    ours = {**_env(), "PASSED": "a=b c", "HIDDEN": "1"}
    done = _run(tmp_path, "--env", "PASSED", "--env", "SET=x=y", "--env", "EMPTY=", "--", "env", env=ours)
    found = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    assert (found["PASSED"], found["SET"], found["EMPTY"]) == ("a=b c", "x=y", "")
    assert "HIDDEN" not in found


def test_a_settings_file_can_be_named(tmp_path: Path) -> None:
    """--config: the command runs as that file says."""
    (tmp_path / "own.toml").write_text("[limits]\n\n[paths]\nartifacts = 'elsewhere'\n")
    environ = {name: value for name, value in _env().items() if not name.startswith("DEBUG_SERVER_PATHS")}
    done = _run(tmp_path, "--config", "own.toml", "--", "true", env=environ)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "elsewhere" / "logs").is_dir()


def test_out_of_memory_is_137(tmp_path: Path) -> None:
    """With a memory cgroup; --require makes sure of it."""
    if reason := missing_mechanism("cgroup"):
        pytest.skip(reason)
    done = _run(tmp_path, "--memory", "48M", "--require", "memory", "--", *program("hog.py", "memory", 256 << 20))
    assert done.returncode == 137
    assert b"out_of_memory" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--memory", "many", "--", "true"], "--memory 'many'"),
        (["--timeout", "-1", "--", "true"], "--timeout -1 must be"),
        (["--require", "wings", "--", "true"], "wings"),
        (["--require", "pids", "--", "true"], "pids"),
    ],
)
def test_a_wrong_request_is_one_line_and_2(tmp_path: Path, arguments: list[str], said: str) -> None:
    """It names the value; nothing was run and nothing recorded."""
    done = _run(tmp_path, *arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and said in done.stderr.decode()
    assert done.stdout == b""


def test_an_unwritable_artifacts_folder_is_one_line_and_125(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / ".artifacts").write_text("in the way")
    done = _run(tmp_path, "--", "true")
    assert done.returncode == 125
    assert len(done.stderr.splitlines()) == 1 and b".artifacts" in done.stderr


def test_both_streams_byte_for_byte(tmp_path: Path) -> None:
    """Random bytes, NUL, invalid UTF-8 and a missing last newline come out as they went in, each on its stream."""
    out, err = os.urandom(700_000) + b"\0\xff\xfe no newline", os.urandom(300_001)
    (tmp_path / "out").write_bytes(out)
    (tmp_path / "err").write_bytes(err)
    done = _run(tmp_path, "--quiet", "--", "sh", "-c", "cat out & cat err >&2; wait")
    assert done.returncode == 0
    assert done.stdout == out
    assert done.stderr == err


def test_output_is_live(tmp_path: Path) -> None:
    """What the command has written is here before it ends."""
    with _started(tmp_path, "--", "sh", "-c", "echo now; sleep 60") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.wait(SECONDS)


def test_a_reader_that_sleeps_loses_nothing(tmp_path: Path) -> None:
    """The command ends long before its output is read; every byte is waited for, however long the reader takes."""
    with _started(tmp_path, "--quiet", "--", "head", "-c", "3000000", "/dev/zero") as process:
        eventually(lambda: [row for row in _rows(tmp_path) if row.status.terminal], what="the end of the command")
        time.sleep(11.0)  # longer than an observer that is not our own output would be waited for
        assert process.stdout is not None
        assert len(process.stdout.read()) == 3_000_000
        assert process.wait(SECONDS) == 0


def _rows(place: Path) -> list[Command]:
    return _commands(place) if (place / ".artifacts/data/metadata.db").exists() else []


def test_a_reader_that_leaves_ends_the_command(tmp_path: Path) -> None:
    """``| head -1``: nobody reads what an endless command says, so it is ended, with the status of SIGPIPE."""
    with _started(tmp_path, "--timeout", "200", "--", "yes") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(SECONDS) == 141


def test_a_reader_that_left_before_the_only_word(tmp_path: Path) -> None:
    """The one word that cannot be written is enough, however early it comes."""
    with _started(tmp_path, "--timeout", "200", "--", "sh", "-c", "echo one; sleep 1000") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SECONDS) == 141


def test_stdin_reaches_the_command(tmp_path: Path) -> None:
    """Byte for byte, and its end too."""
    data = os.urandom(2_000_000)
    done = _run(tmp_path, "--quiet", "--", "cat", input=data)
    assert done.stdout == data
    assert done.returncode == 0


def test_a_command_that_does_not_read_its_stdin_ends(tmp_path: Path) -> None:
    """What nobody reads is no reason to wait."""
    done = _run(tmp_path, "--", "true", input=b"x" * 1_000_000)
    assert done.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_and_says_so(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C ends the whole tree, the row says cancelled, the last line too, and the status is 130."""
    with _started(tmp_path, "--", "sh", "-c", "echo ready; sleep 1000 & sleep 1000") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(SECONDS) == 130
        said = process.stderr.read().decode()
    assert said.splitlines()[-1].startswith("[debug-server] cancelled: ")
    assert "Traceback" not in said
    (command,) = _commands(tmp_path)
    assert (command.status, command.exit_reason) == (CommandStatus.CANCELLED, ExitReason.CANCELLED)


def test_an_interrupt_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    """Whenever it comes, no process and no unfinished row stays behind."""
    for delay in (0.3, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9):
        with _started(tmp_path, "--", "sleep", "1000") as process:
            time.sleep(delay)  # the moment is what is tested
            process.send_signal(signal.SIGINT)
            process.wait(SECONDS)
    assert [command.status for command in _rows(tmp_path) if not command.status.terminal] == []


def test_a_killed_cli_leaves_the_command_to_be_adopted(tmp_path: Path) -> None:
    """kill -9 of the program: the command goes on to its end, and the next one to look finishes its row."""
    with _started(tmp_path, "--", "sh", "-c", "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        process.wait(SECONDS)
    (command,) = _commands(tmp_path)
    assert not command.status.terminal  # pending still, where the kill came before the start was recorded
    (tmp_path / "go").touch()
    supervisor = [sys.executable, "-W", "error", "-m", "debug_server.runner.supervisor"]
    done = subprocess.run(
        [*supervisor, "--session", str(command.session_id)],
        cwd=tmp_path,
        env=_env(),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n")
    assert done.stderr.startswith(b"[debug-server] exited: ")
    (command,) = _commands(tmp_path)
    assert command.status is CommandStatus.SUCCEEDED


def test_a_terminal_of_its_own(tmp_path: Path) -> None:
    """--tty: the command has a terminal, on which piped input is typed and ended, with or without a last newline."""
    for typed in (b"hi", b"hi\n"):
        done = _run(
            tmp_path, "--tty", "--quiet", "--", "sh", "-c", "test -t 0 && test -t 1 && cat > typed", input=typed
        )
        assert done.returncode == 0
        assert (tmp_path / "typed").read_bytes() == typed


def test_our_terminal_is_passed_on(tmp_path: Path) -> None:
    """--tty on a terminal: keys reach the command raw, ^C among them, and our terminal is as before afterwards."""
    ours, theirs = pty.openpty()
    before = os.popen(f"stty -g < /proc/{os.getpid()}/fd/{theirs}").read()
    pipes = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with _started(
        tmp_path,
        "--tty",
        "--",
        "sh",
        "-c",
        "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done",
        **pipes,
    ) as process:
        _read_until(ours, b"ready")
        os.write(ours, b"\x03")
        _read_until(ours, b"caught")
        assert process.wait(SECONDS) == 9
    assert os.popen(f"stty -g < /proc/{os.getpid()}/fd/{theirs}").read() == before
    os.close(ours)
    os.close(theirs)


def _read_until(terminal: int, text: bytes) -> None:
    seen = b""
    deadline = time.monotonic() + SECONDS
    while text not in seen:
        assert select.select([terminal], [], [], deadline - time.monotonic())[0], seen
        seen += os.read(terminal, 4096)


def test_the_line_names_the_session(tmp_path: Path) -> None:
    """So that its log can be shown later."""
    done = _run(tmp_path, "--", "true")
    assert done.stderr.rstrip().endswith(f"session {_commands(tmp_path)[0].session_id})".encode())


@pytest.mark.parametrize("folder", ["logs", "keepers"])
def test_a_folder_in_the_way_is_a_failure_of_ours(tmp_path: Path, folder: str) -> None:
    """Status 125, not the 127 of a program that cannot be started."""
    (tmp_path / ".artifacts").mkdir()
    (tmp_path / ".artifacts" / folder).touch()
    done = _run(tmp_path, "--", "true")
    assert done.returncode == 125, done.stderr
    assert folder.encode() in done.stderr
    (tmp_path / ".artifacts" / folder).unlink()


def test_a_refused_request_leaves_no_session(tmp_path: Path) -> None:
    """A requirement that cannot be met is said before anything is stored."""
    done = _run(tmp_path, "--require", "pids", "--", "true")
    assert (done.returncode, b"no pids limit was given" in done.stderr) == (2, True)
    with open_store(f"sqlite:///{tmp_path}/.artifacts/data/metadata.db") as store:
        assert store.sessions.page() == []
