"""The program with streams that are closed, full or of another alphabet, and with an interrupt while it loads."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.cli.conftest import PROGRAM, SECONDS, Terminal

pytestmark = pytest.mark.usefixtures("nothing_left")


def shell(alone: Terminal, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A line for a shell in which ``$@`` is the program."""
    return subprocess.run(
        ["/bin/sh", "-c", line, "sh", *PROGRAM],
        cwd=alone.folder,
        env={**alone.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_a_closed_stderr_hides_only_what_is_written_there(alone: Terminal) -> None:
    """The command runs, and its output and exit status are passed through."""
    done = shell(alone, """"$@" run -- sh -c 'echo hi; exit 3' 2>&-""")
    assert (done.returncode, done.stdout, done.stderr) == (3, "hi\n", "")


def test_a_closed_stdin_is_empty(alone: Terminal) -> None:
    """A command that reads it sees its end."""
    done = shell(alone, '"$@" run --quiet -- cat <&-')
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("words", ["doctor", "repo list", "--version", "--json doctor"])
@pytest.mark.parametrize(("target", "reason"), [(">&-", "Bad file descriptor"), ("> /dev/full", "No space left")])
def test_an_answer_that_cannot_be_written_is_one_line(alone: Terminal, words: str, target: str, reason: str) -> None:
    """On stderr, with status 1; where that is closed too the status alone says it."""
    done = shell(alone, f'"$@" {words} {target}')
    assert done.returncode == 1
    assert done.stderr.startswith(f"debug-server: cannot write to stdout: {reason}")
    assert len(done.stderr.splitlines()) == 1
    assert shell(alone, f'"$@" {words} {target} 2>&-').returncode == 1


def test_output_that_cannot_be_written_ends_the_command(alone: Terminal) -> None:
    """``run`` says so in one line, with the status of a failure of its own."""
    done = shell(alone, '"$@" run -- sh -c "echo hi; sleep 600" >&-')
    assert (done.returncode, done.stderr) == (125, "debug-server: cannot write to stdout: Bad file descriptor\n")


@pytest.mark.parametrize(
    "variables",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["encoding", "locale"],
)
def test_an_ascii_terminal_gets_the_help(alone: Terminal, variables: dict[str, str]) -> None:
    """Of every command, whatever characters it has."""
    for words in ("run", "command submit", "tasks list", "repo add"):
        done = shell(alone, f'"$@" {words} --help', **variables)
        assert (done.returncode, done.stderr) == (0, ""), words


LOADING = """
import signal, sys
from debug_server.__main__ import main

module = sys.argv.pop(1)

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
main()
"""


@pytest.mark.parametrize("words", ["run -- true", "doctor", "serve --port 0 --no-grpc", "mcp", "repo list"])
@pytest.mark.parametrize("module", ["debug_server.app.programs", "typer", "debug_server.app.local"])
def test_an_interrupt_while_modules_load_is_quiet(alone: Terminal, words: str, module: str) -> None:
    """Status 130 and no traceback, whatever is being loaded."""
    done = subprocess.run(
        [sys.executable, "-c", LOADING, module, *words.split()],
        cwd=alone.folder,
        env=alone.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr.removeprefix("[debug-server] interrupted\n")) == (130, "")


def test_an_ignored_interrupt_stays_ignored(alone: Terminal) -> None:
    """A shell's background job, which ignores SIGINT, is not ended by one."""
    line = f"""trap '' INT; "$@" run -- sh -c 'kill -{int(signal.SIGINT)} $PPID; echo on'"""
    assert "on\n" in shell(alone, line).stdout


def test_the_folder_that_was_removed(alone: Terminal) -> None:
    """``run`` names it in one line, and doctor says that commands cannot run there."""
    kept = {"DEBUG_SERVER_PATHS_ARTIFACTS": str(alone.folder / "data")}
    gone: Path = alone.folder / "gone"
    gone.mkdir()
    done = shell(alone, 'cd gone; rmdir ../gone; "$@" run -- true', **kept)
    assert (done.returncode, done.stderr) == (
        125,
        "debug-server: the current folder no longer exists: change to another one\n",
    )
    gone.mkdir()
    done = shell(alone, 'cd gone; rmdir ../gone; "$@" doctor', **kept)
    assert done.returncode == 1
    assert "the current folder no longer exists" in done.stdout
    assert done.stdout.endswith("commands cannot run here\n")
