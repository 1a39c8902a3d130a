"""One command, and its output at its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running import eventually
from tests.servers import serving
from tests.surfaces.cli.conftest import Terminal


def test_output_and_status_are_the_commands(terminal: Terminal, project: Callable[[], str]) -> None:
    """In a new folder, in a workspace, in a session; as JSON, with its times."""
    script = ("sh", "-c", "echo out; echo err >&2; exit 3")
    done = terminal("exec", "--", *script)
    assert (done.status, done.out, done.err) == (3, "out\n", "err\n")
    answer = terminal("exec", "--json", "--", *script)
    assert answer.status == 3
    assert (answer.json["stdout"], answer.json["stderr"], answer.json["exit_code"]) == ("out\n", "err\n", 3)
    name = project()
    assert terminal("exec", "--repo", name, "--", "cat", "a.txt").out == "hello\n"
    session = terminal("--json", "session", "create", "--repo", name).json["id"]
    assert terminal("exec", "--session", session, "--env", "A=b", "--", "sh", "-c", "echo $A > made").status == 0
    assert terminal("exec", "--session", session, "--", "cat", "made").out == "b\n"
    assert terminal("exec", "--session", 10**6, "--", "true").status == 1
    assert terminal("exec", "--wait", "soon", "--", "true").status == 2
    assert terminal("session", "close", session).status == 0


def test_a_command_that_still_runs_is_75(terminal: Terminal) -> None:
    """The line says how to follow it."""
    done = terminal("exec", "--wait", "0.5", "--", "sleep", "600")
    assert done.status == 75 and "still runs: debug-server logs" in done.err, done.err
    command = done.err.split()[2]
    assert terminal("command", "cancel", command).status == 0


def test_an_end_that_is_not_the_command_s_own_is_told(terminal: Terminal) -> None:
    """The line and the status are those of run; as JSON the answer has the reason."""
    for options, words, status in (
        ((), ("no-such-program",), 127),
        (("--timeout", "0.5"), ("sleep", "600"), 124),
        (("--output", "1K"), ("sh", "-c", "exec yes"), 123),
    ):
        done = terminal("exec", *options, "--", *words)
        reason = terminal("exec", "--json", *options, "--", *words).json["exit_reason"]
        assert done.status == status and reason in done.err.splitlines()[-1], done


def test_every_byte_is_printed(terminal: Terminal) -> None:
    """Also of output that is too much for one answer."""
    done = terminal("exec", "--", sys.executable, "-c", "for n in range(2_500_000): print(f'{n:08}')")
    assert done.status == 0 and "left out" not in done.err, done.err
    assert done.out == "".join(f"{n:08}\n" for n in range(2_500_000))


def test_sigterm_cancels_the_command(terminal: Terminal) -> None:
    """As with run: nothing runs on."""
    begun, ended = terminal.folder / "begun", terminal.folder / "ended"
    text = f"trap 'touch {ended}; exit 0' TERM; touch {begun}; while :; do sleep 0.05; done"
    with terminal.start("exec", "--", "sh", "-c", text) as process:
        eventually(begun.exists, what="the command")
        process.terminate()
        assert process.wait(100) == 130
    eventually(ended.exists, what="the end of the command")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_that_starts_again_is_waited_for(tmp_path: Path, end: str) -> None:
    """Stopped or killed in between, the command runs once and its output and status are printed."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    text = f"echo once >> {begun}; while [ ! -e {gate} ]; do sleep 0.02; done; echo done; exit 3"
    with serving(tmp_path / "server") as server:
        variables = {"DEBUG_SERVER_URL": server.base_url, "DEBUG_SERVER_TOKEN": server.token}
        with Terminal(folder=tmp_path, variables=variables).start("exec", "--", "sh", "-c", text) as process:
            eventually(begun.exists, what="the command")
            getattr(server, end)()
            server.start()
            gate.touch()
            out, err = process.communicate(timeout=200)
    assert (process.returncode, out, begun.read_text()) == (3, b"done\n", "once\n"), err


def test_input_that_exec_does_not_pass_on_is_told(terminal: Terminal) -> None:
    """In one line with what to use; without input there is no line."""
    done = terminal("exec", "--", "cat", stdin="unread")
    assert (done.status, done.out) == (0, "") and "passes no input on: use `debug-server run`" in done.err, done
    assert terminal("exec", "--", "true").err == ""


def test_what_does_not_go_together_is_refused(terminal: Terminal) -> None:
    """Before anything is run, with what to write."""
    both = terminal("exec", "--session", "1", "--repo", "some", "--", "true")
    assert both.status == 2 and "give --session or --repo, not both" in both.err, both
    unmarked = terminal("command", "submit", "1", "ls", "-l")
    assert unmarked.status == 2 and "write -- before the program" in " ".join(unmarked.err.split()), unmarked
    outside = terminal("exec", "--cwd", "/etc", "--", "true")
    assert outside.status == 2 and "cwd '/etc' is outside the workspace" in outside.err, outside
    none = terminal("exec", "--wait", "0", "--", "true")
    assert none.status == 2 and "--wait '0' must be longer than 0" in none.err, none


def test_a_patched_workspace_and_kept_files(terminal: Terminal, project: Callable[[], str]) -> None:
    """As with run: a patch of the commit, a manifest by its name, and files that match a pattern."""
    patch = terminal.folder / "p.patch"
    patch.write_text("--- /dev/null\n+++ b/added\n@@ -0,0 +1 @@\n+new\n")
    name = project()
    done = terminal("exec", "--repo", name, "--patch", patch, "--artifact", "add*", "--", "cat", "added")
    assert (done.status, done.out) == (0, "new\n"), done
    session = done.err.split()[-1]
    assert [row["name"] for row in terminal("--json", "artifact", "list", session).items].count("added") == 1
    refused = terminal("exec", "--repo", name, "--manifest", "none.txt", "--", "true")
    assert refused.status == 125, refused
    for option in (("--patch", patch), ("--commit", "main"), ("--manifest", "m.txt")):
        refused = terminal("exec", *option, "--", "true")
        assert refused.status == 2 and f"{option[0]} needs --repo" in refused.err, refused


def test_run_passes_stdin_on(terminal: Terminal, project: Callable[[], str]) -> None:
    """Every byte and the end, and a program that reads nothing is not waited for."""
    name = project()
    text = "".join(f"line {number}\n" for number in range(40_000))
    done = terminal("command", "run", "-i", "--repo", name, "--", "cat", stdin=text)
    assert (done.status, done.out == text) == (0, True), done.err
    assert terminal("command", "run", "-i", "--repo", name, "--", "true", stdin=text).status == 0
    assert terminal("command", "run", "--repo", name, "--", "cat", stdin="unread").out == "", "only with -i"
