"""A person at a terminal: a shell in a pseudo-terminal, in which the program is typed, step by step."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.repositories import make_repository
from tests.running import eventually
from tests.surfaces.cli.conftest import SECONDS, Terminal

PATCH = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-hello\n+patched\n"
# Takes the terminal, as a login does, and becomes the shell.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " os.execvp(sys.argv[1], sys.argv[1:])"
)
PROMPT = re.compile(r"<(\d+)> $")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Screen:
    """A shell at a terminal; each line that is typed is answered with what appears, and its exit status."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._bytes = b""  # a read may end amid a character or a sequence

    def read_until(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Everything that appears until it matches."""
        deadline = time.monotonic() + SECONDS
        while (found := pattern.search(self._seen)) is None:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._terminal], [], [], left)[0], self._seen
            self._bytes += os.read(self._terminal, 4096)
        return found

    @property
    def _seen(self) -> str:
        return ESCAPES.sub("", self._bytes.decode(errors="ignore"))

    def press(self, keys: str) -> None:
        """Type without waiting."""
        os.write(self._terminal, keys.encode())

    def answer(self) -> tuple[int, str]:
        """The exit status of the line, and what appeared since it was typed."""
        found = self.read_until(PROMPT)
        self._bytes = b""
        return int(found[1]), found.string[: found.start()]

    def type(self, line: str) -> tuple[int, str]:
        """Type a line and wait for the next prompt."""
        self.press(f"{line}\n")
        return self.answer()


@contextmanager
def screen(terminal: Terminal) -> Iterator[Screen]:
    """A shell in the terminal's folder."""
    ours, theirs = pty.openpty()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**terminal.environ, "PATH": path, "PS1": "<$?> ", "TERM": "vt100", "COLUMNS": "200", "LINES": "50"}
    shell = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, "sh", "-i"],
        cwd=terminal.folder,
        env=environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    try:
        found = Screen(ours)
        found.answer()
        yield found
        found.press("exit\n")
        shell.wait(SECONDS)
    finally:
        shell.kill()
        shell.wait(SECONDS)
        os.close(ours)
        os.close(theirs)


def test_a_walk(terminal: Terminal, tmp_path: Path) -> None:
    """Open with a patch, run, fail, digest, diff, interrupt, cancel, list, history, run again, close, remove."""
    make_repository(terminal.folder / "walk")
    (terminal.folder / "fix.patch").write_text(PATCH)
    name = f"walk-{tmp_path.name}"[-60:].strip("-_")
    with screen(terminal) as person:
        status, said = person.type(f"debug-server repo add walk --name {name}")
        assert status == 0 and f"registered repository {name}" in said, said
        status, said = person.type(f"debug-server session create --repo {name} --patch fix.patch")
        opened = re.search(r"session (\d+) is open", said)
        assert status == 0 and opened is not None, said
        session = opened[1]
        status, said = person.type(f"debug-server command submit {session} -f -- cat a.txt")
        assert status == 0 and "\npatched\n" in said and "exited with status 0" in said, said
        script = "echo made > made.txt; echo 'Error: no luck' >&2; exit 3"
        status, said = person.type(f'debug-server command submit {session} -f -- sh -c "{script}"')
        assert status == 3 and "Error: no luck" in said and "exited with status 3" in said, said
        failed = terminal("--json", "history", "--session", session).items[0]["id"]
        status, said = person.type(f"debug-server logs {failed} --digest")
        assert status == 0 and "Error: no luck" in said, said
        status, said = person.type(f"debug-server session diff {session}")
        assert status == 0 and "+patched" in said and "+made" in said, said
        person.press(f"debug-server command submit {session} -f -- sleep 600\n")
        eventually(
            lambda: [row["status"] for row in terminal("--json", "ps", "--session", session).items] == ["running"],
            what="the command to be interrupted",
        )
        person.press("\x03")
        status, said = person.answer()
        assert status == 130 and "was cancelled" in said, said
        status, said = person.type(f"debug-server command submit {session} -- sleep 600")
        started = re.search(r"command (\d+) is (running|pending)", said)
        assert status == 0 and started is not None, said
        status, said = person.type(f"debug-server ps --repo {name}")
        assert status == 0 and "sleep 600" in said, said
        status, said = person.type(f"debug-server command cancel {started[1]}")
        assert status == 0 and "is cancelled" in said, said
        status, said = person.type("debug-server session list --status open")
        assert status == 0 and re.search(rf"^{session}\s+open", said, re.MULTILINE), said
        status, said = person.type(f"debug-server history --repo {name}")
        rows = [line.split()[1] for line in said.splitlines() if re.match(r"\d+ ", line)]
        assert (status, rows) == (0, ["cancelled", "cancelled", "failed", "succeeded"]), said
        status, said = person.type(f"debug-server rerun {failed}")
        assert status == 3 and "Error: no luck" in said, said
        assert person.type(f"debug-server session close {session}")[0] == 0
        status, said = person.type(f"debug-server repo remove {name}")
        assert status == 0 and "is removed" in said, said
        status, said = person.type("debug-server histroy")
        assert status == 2 and "Did you mean 'history'?" in said, said


def test_a_program_that_asks(alone: Terminal) -> None:
    """``run -it`` gives a program the terminal: it reads what is typed, and ends with its own status."""
    with screen(alone) as person:
        person.press("debug-server run -it --quiet -- sh -c 'echo question; read word; echo \"got $word\"; exit 7'\n")
        person.read_until(re.compile(r"\nquestion"))
        person.press("answer\n")
        status, said = person.answer()
        assert status == 7 and "got answer" in said, said
        assert person.type("stty -a | grep -q ' icanon'")[0] == 0
