"""Every command group, with and without a server: the same words, the same answers, the same exit statuses."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

from tests.repositories import make_repository
from tests.running import eventually
from tests.servers import ServerProcess
from tests.surfaces.cli.conftest import Terminal

PATCH = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-hello\n+patched\n"
LINE = re.compile(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00\] (STDOUT|STDERR): (.*)")


def test_a_session_from_create_to_close(terminal: Terminal, project: Callable[[], str]) -> None:
    """Create with a patch and commands, follow, read logs three ways, diff, artifacts, reset, fork, close."""
    name = project()
    (terminal.folder / "fix.patch").write_text(PATCH)
    (terminal.folder / "bad.patch").write_text(PATCH.replace("hello", "other"))
    refused = terminal("session", "create", "--repository", name, "--patch", "bad.patch")
    assert refused.status == 2 and "a.txt" in refused.err, refused
    flags = ("--repository", name, "--commit", "main", "--patch", "fix.patch", "--metadata", "issue=7")
    done = terminal(
        "session", "create", *flags, "--command", "cat a.txt", "--command", "echo e >&2; exit 3", "--follow"
    )
    assert (done.status, done.out.splitlines()[1:]) == (3, ["patched"])
    assert "nonzero_exit" in done.err
    session = done.out.split()[1]
    assert terminal("--json", "session", "show", session).json["metadata"]["issue"] == 7
    rows = terminal("command", "list", session, "--json").items
    assert [row["command"][:2] for row in rows] == [["/bin/bash", "-c"]] * 2
    second, first = (row["id"] for row in rows)
    _check_logs(terminal, session, first, second)
    assert "+patched" in terminal("session", "diff", session).out
    kept = terminal("command", "submit", session, "--artifact", "*.xml", "-f", "--", "sh", "-c", "echo '<x/>' > r.xml")
    assert kept.status == 0, kept.err
    (artifact,) = [row for row in terminal("--json", "artifact", "list", session).items if row["name"] == "r.xml"]
    assert terminal("artifact", "show", session, artifact["id"]).status == 0
    assert terminal("artifact", "download", session, artifact["id"], "--output", "got").status == 0
    assert (terminal.folder / "got").read_text() == "<x/>\n"
    (fork,) = terminal("--json", "session", "fork", session).items
    assert terminal("session", "reset", session).status == 0
    assert "r.xml" not in terminal("session", "diff", session).out
    assert terminal("--json", "session", "diff", fork["id"]).json["exact"] is True
    for number in (session, fork["id"]):
        assert terminal("session", "close", number).out == f"session {number} is closed\n"


def _check_logs(terminal: Terminal, session: str, first: int, second: int) -> None:
    text = terminal("logs", first)
    found = LINE.fullmatch(text.out.strip())
    assert found is not None
    assert found.groups()[1:] == ("STDOUT", "patched")
    assert terminal("logs", first, "--offset", 5, "--raw").out == "ed\n"
    both = [
        json.loads(line) for line in terminal("session", "logs", session, "-f", "--format", "json").out.splitlines()
    ]
    assert [(row["stream"], row["message"], row["command_id"]) for row in both] == [
        ("stdout", "patched", first),
        ("stderr", "e", second),
    ]
    raw = terminal("logs", "-f", second, "--raw")
    assert (raw.out, raw.err) == ("", "e\n")


def test_parts_of_a_log(terminal: Terminal, project: Callable[[], str]) -> None:
    """``--tail``, ``--grep`` and ``--digest`` show a part of a command's log, and of each log of a session."""
    name = project()
    session = terminal("--json", "session", "create", "--repository", name, "--commit", "main").json["id"]
    script = "for i in $(seq 300); do echo row $i; done; echo FAILED tests/a.py::test_x - boom; exit 1"
    ran = terminal("--json", "command", "submit", session, "--", "sh", "-c", script).json["id"]
    assert terminal("command", "wait", ran).status == 1
    assert terminal("logs", ran, "--tail", 2, "--raw").out == "row 300\nFAILED tests/a.py::test_x - boom\n"
    assert terminal("logs", ran, "--tail", 1, "-f").out.endswith("STDOUT: FAILED tests/a.py::test_x - boom\n")
    assert terminal("logs", ran, "--grep", "^row [12]$").out == "row 1\nrow 2\n"
    assert terminal("logs", ran, "-i", "-g", "ROW 9$", "-C", 1).out == "row 8\nrow 9\nrow 10\n"
    assert terminal("logs", ran, "--tail", 3, "--grep", "row").out == "row 299\nrow 300\n"
    found = terminal("--json", "logs", ran, "--grep", "boom").json
    assert (found["command_id"], found["text"]) == (ran, "FAILED tests/a.py::test_x - boom")
    nothing = terminal("logs", ran, "--grep", "no such line")
    assert (nothing.status, nothing.out) == (1, "") and "no line matches 'no such line'" in nothing.err
    wrong = terminal("logs", ran, "--grep", "(")
    assert wrong.status == 2 and "'('" in wrong.err
    digest = terminal("logs", ran, "--digest")
    assert "failing tests (1):" in digest.out and "tests/a.py::test_x" in digest.out
    assert terminal("--json", "logs", ran, "--digest", "--max-tokens", 200).json["text"] is None
    both = terminal("logs", ran, "--digest", "--tail", 1)
    assert both.status == 2 and "--digest and --tail do not go together" in both.err
    title = f"command {ran}, nonzero_exit: sh -c "
    assert terminal("session", "logs", session, "--digest").out.startswith(title)
    lines = terminal("session", "logs", session, "--grep", "^row 3$").out.splitlines()
    assert lines[0].startswith(title) and lines[1:] == ["row 3"]
    assert terminal("session", "logs", session, "--tail", 1, "--raw").out == "FAILED tests/a.py::test_x - boom\n"
    assert terminal("session", "logs", session, "--grep", "no such line").status == 1


def test_a_secret_is_passed_on_and_kept_out_of_the_log(terminal: Terminal, project: Callable[[], str]) -> None:
    """``command run`` and ``command submit`` take ``--secret NAME``; a name that is not set is refused."""
    name = project()
    terminal.variables["API_PASS"] = "correct-horse"
    show = ("--secret", "API_PASS", "--", "sh", "-c", 'echo "$API_PASS"; test "$API_PASS" = correct-horse')
    ran = terminal("command", "run", "--repository", name, *show)
    assert (ran.status, ran.out) == (0, "[redacted]\n"), ran.err
    session = terminal("--json", "session", "create", "--repository", name, "--commit", "main").json["id"]
    submitted = terminal("command", "submit", session, "--follow", *show)
    assert (submitted.status, submitted.out) == (0, "[redacted]\n"), submitted.err
    refused = terminal("command", "submit", session, "--secret", "NOT_SET", "--", "true")
    assert refused.status != 0 and "--secret NOT_SET: this variable is not set" in refused.err


def test_commands_are_submitted_fed_and_waited_for(terminal: Terminal, project: Callable[[], str]) -> None:
    """A command that was left alone takes stdin and signals of later calls, and tells its end to whoever waits."""
    name = project()
    session = terminal("--json", "session", "create", "--repository", name, "--commit", "main").json["id"]
    fed = terminal("--json", "command", "submit", session, "--stdin", "--", "sh", "-c", "cat; exit 5").json["id"]
    assert terminal("command", "wait", fed, "--timeout", "0.2").status == 75
    assert terminal("command", "stdin", fed, "--text", "one\n").status == 0
    assert terminal("command", "stdin", fed, "--close", stdin="two\n").status == 0
    assert terminal("command", "wait", fed).status == 5
    assert terminal("logs", "--raw", fed).out == "one\ntwo\n"
    slept = terminal("--json", "command", "submit", session, "--", "sleep", "600").json["id"]
    assert terminal("command", "signal", slept, "TERM").status == 0
    assert terminal("command", "wait", slept).status == 128 + signal.SIGTERM
    ended = terminal("--json", "command", "submit", session, "--", "sleep", "600").json["id"]
    assert terminal("command", "cancel", ended).out == f"command {ended} is cancelled (cancelled)\n"
    assert terminal("command", "show", ended).out.startswith(f"id                {ended}\n")
    kinds = [json.loads(line)["kind"] for line in terminal("--json", "events", "--command", ended).out.splitlines()]
    assert kinds[0] == "command.pending"
    for wrong in (["--task", "T"], ["--repo", "*", "--kind", "x"], ["--repo", "*", "--after", "3", "--cursor", "3"]):
        refused = terminal("events", *wrong)
        assert (refused.status, refused.out) == (2, ""), "an option that would be ignored is refused"
    terminal("session", "close", session)


def test_a_run_ends_as_its_command_does(terminal: Terminal, project: Callable[[], str]) -> None:
    """``command run`` opens, runs and closes: streams and status are the command's, a limit has its own."""
    name = project()
    flags = ("command", "run", "--repository", name, "--commit", "main")
    done = terminal(*flags, "--env", "WHO=me", "--", "sh", "-c", "cat a.txt; echo $WHO >&2; exit 9")
    assert (done.status, done.out, done.err.splitlines()[0]) == (9, "hello\n", "me")
    assert terminal(*flags, "--timeout", "0.3", "--", "sleep", "60").status == 124
    assert terminal(*flags, "--", "no-such-program-anywhere").status == 127
    assert terminal(*flags, "--output", "1K", "--", "yes").status == 123
    shown = terminal(*flags, "--open-files", "50", "--file-size", "4M", "--", "sh", "-c", "ulimit -n; ulimit -f")
    assert shown.out.split() == ["50", str((4 << 20) // 512)]
    session = terminal("--json", "session", "create", "--repository", name, "--commit", "main").json["id"]
    bounds = ("--output", "9M", "--cpu-seconds", "30", "--open-files", "50", "--file-size", "4M")
    left = terminal("--json", "command", "submit", session, "--follow", *bounds, "--", "true")
    asked = terminal("--json", "command", "list", session).items[0]["exit"]["limits"]
    assert left.status == 0
    assert {"output_bytes", "cpu_seconds", "open_files", "file_size_bytes"} <= asked.keys()
    terminal("session", "close", session)


def test_operators_commands(terminal: Terminal) -> None:
    """Tokens are made, listed with their quotas and revoked; status says who answers and that all is well."""
    scopes = ("--scope", "sessions:read,artifacts:read", "--expires-in", "2h")
    bounds = ("--quota", "sessions=4", "--quota", "requests_per_second=2.5")
    made = terminal("--json", "token", "create", "ci", *scopes, *bounds).json
    assert made["scopes"] == ["sessions:read", "artifacts:read"]
    assert made["quotas"] == {"sessions": 4, "requests_per_second": 2.5}
    (listed,) = [row for row in terminal("--json", "token", "list").items if row["id"] == made["id"]]
    assert listed["quotas"] == made["quotas"]
    assert "requests_per_second=2.5,sessions=4" in terminal("token", "list").out
    assert made["token"] not in terminal("token", "list").out
    assert terminal("token", "revoke", made["id"]).status == 0
    status = terminal("status", "--leases", "--workers")
    assert status.status == 0
    assert re.search(r"^keepers +ok$", status.out, re.MULTILINE)
    assert terminal("--json", "status").json["health"]["ok"] is True


def test_refusals_have_one_line_and_their_own_status(terminal: Terminal) -> None:
    """Unknown things exit with 1, wrong values with 2, each with one line; --json makes it an object on stderr."""
    missing = terminal("session", "show", 987654)
    assert (missing.status, missing.out, missing.err) == (
        1,
        "",
        "debug-server: there is no session 987654: see `debug-server session list`\n",
    )
    as_json = terminal("session", "show", 987654, "--json")
    assert json.loads(as_json.err)["error"]["code"] == "not_found"
    assert terminal("token", "create", "x", "--scope", "everything").status == 2
    assert terminal("token", "create", "x", "--expires-in", "soon").status == 2
    assert terminal("session", "list", "--limit", 0).status == 2
    assert terminal("no-such-command").status == 2
    debug = terminal("session", "debug", 987654)
    assert debug.status == 1


def test_interrupting_cancels_the_command_that_was_started(terminal: Terminal, project: Callable[[], str]) -> None:
    """Ctrl-C on a followed command ends its tree, says which command that was, and exits with 130."""
    name = project()
    flags = ("--repository", name, "--commit", "main", "--command", "echo up; sleep 600", "--follow")
    with terminal.start("session", "create", *flags) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        session = next(lines).split()[1].decode()
        assert next(lines) == b"up\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=100)
    assert process.returncode == 130
    assert re.search(rb"command \d+ was cancelled", err)
    (row,) = terminal("--json", "command", "list", session).items
    assert row["exit_reason"] == "cancelled"
    terminal("session", "close", session)


def test_leaving_a_log_does_not_end_its_command(terminal: Terminal, project: Callable[[], str]) -> None:
    """Ctrl-C on ``logs -f`` leaves the command running."""
    name = project()
    session = terminal("--json", "session", "create", "--repository", name, "--commit", "main").json["id"]
    command = terminal("--json", "command", "submit", session, "--", "sh", "-c", "echo up; sleep 600").json["id"]
    with terminal.start("logs", "-f", "--raw", command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=100)
    assert process.returncode == 130
    # Its row may say so a little later than its output came.
    eventually(lambda: terminal("--json", "command", "show", command).json["status"] == "running")
    assert terminal("session", "close", session).status == 0
    assert terminal("--json", "command", "show", command).json["exit_reason"] == "cancelled"


def test_a_wrong_token_and_a_dead_server(server: ServerProcess, tmp_path: Path) -> None:
    """A token that is not known exits with 77 and a server that is not there with 75."""
    terminal = Terminal(folder=tmp_path)
    assert terminal("--base-url", server.base_url, "--token", "nonsense", "session", "list").status == 77
    gone = terminal("--base-url", "http://127.0.0.1:1", "--token", "x", "status")
    assert gone.status == 75
    assert "http://127.0.0.1:1" in gone.err


def test_server_init_saves_the_token(server: ServerProcess, tmp_path: Path) -> None:
    """``server init --save-token`` registers a remote with its manifests and remembers the server for later calls."""
    terminal = Terminal(folder=tmp_path)
    flags = ("--base-url", server.base_url, "--token", server.token)
    remote = (make_repository(tmp_path / "tool"), "--manifest", "requirements.txt", "--save-token")
    assert terminal(*flags, "server", "init", *remote).status == 0
    shown = terminal("--json", "repo", "show", "tool").json
    assert shown["settings"] == {"manifests": ["requirements.txt"]}
    assert (tmp_path / "home" / "config.toml").stat().st_mode & 0o777 == 0o600


def test_a_patch_of_any_bytes(terminal: Terminal, project: Callable[[], str]) -> None:
    """A patch that is not UTF-8 is read and printed as it is."""
    name = project()
    (terminal.folder / "fix.patch").write_bytes(PATCH.encode().replace(b"patched", b"gr\xfc\xdf"))
    script = "printf 'gr\\374\\337\\n' | cmp - a.txt"
    done = terminal("exec", "--repo", name, "--patch", "fix.patch", "--", "sh", "-c", script)
    assert done.status == 0, done
    created = terminal("session", "create", "--repo", name, "--patch", "fix.patch", "--json")
    assert created.status == 0, created
    with terminal.start("session", "diff", created.json["id"]) as process:
        printed, _ = process.communicate(timeout=100)
    assert b"+gr\xfc\xdf\n" in printed
