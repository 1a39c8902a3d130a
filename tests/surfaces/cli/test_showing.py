"""What is shown: log lines from pieces cut anywhere, tables, words read from a command line."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError, NotFoundError
from debug_server.kanban import kanban_pb2
from debug_server.messages import EventReply, LogPiece, Message
from debug_server.model.signals import signal_number
from debug_server.surfaces.cli import event_stream, events
from debug_server.surfaces.cli.invocation import Invocation
from debug_server.surfaces.cli.log_lines import LineLog, RawLog, json_log, show, text_log
from debug_server.surfaces.cli.output import Output, cell, print_notice
from debug_server.surfaces.cli.remotes import name_for
from debug_server.surfaces.cli.words import duration, json_pairs, pairs, patch_bytes
from tests.surfaces.cli.conftest import Terminal

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def pieces(data: bytes, step: int, stream: str = "stdout") -> list[LogPiece]:
    """The bytes in pieces of one size."""
    return [
        LogPiece(offset=start, stream=stream, data=data[start : start + step], timestamp=WHEN, command_id=1)
        for start in range(0, len(data), step)
    ]


def test_lines_are_put_together_from_any_pieces() -> None:
    """However the bytes are cut, also inside a character, each line comes out once; so does an unfinished last one."""
    data = "grüße\n\n二\nend".encode()
    for step in range(1, len(data) + 1):
        found: list[str] = []
        show(pieces(data, step), LineLog(lambda _, line, found=found: found.append(line)))  # type: ignore[misc]
        assert found == ["grüße", "", "二", "end"]


def test_streams_do_not_mix_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A half line of one stream waits for its other half while the other stream goes on."""
    out, err = pieces(b"out 1\n", 3), pieces(b"err 1\n", 6, "stderr")
    show([out[0], *err, out[1]], text_log())
    assert capsys.readouterr().out.splitlines() == [
        "[2026-01-02T03:04:05+00:00] STDERR: err 1",
        "[2026-01-02T03:04:05+00:00] STDOUT: out 1",
    ]


def test_a_json_line_has_the_known_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """message, stream and timestamp, and which command it is of."""
    show(pieces(b"one\n", 4), json_log())
    assert json.loads(capsys.readouterr().out) == {
        "message": "one",
        "stream": "stdout",
        "timestamp": "2026-01-02T03:04:05+00:00",
        "command_id": 1,
    }


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    """A program that writes megabytes without a line break is shown in parts."""
    found: list[str] = []
    show(pieces(b"x" * (3 << 20), 1 << 16), LineLog(lambda _, line: found.append(line)))
    assert "".join(found) == "x" * (3 << 20)
    assert len(found) > 1


def test_raw_bytes_go_where_they_came_from(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """stdout's bytes on stdout, stderr's on stderr, unchanged."""
    show([*pieces(b"\xff\x00\n", 2), *pieces(b"e", 1, "stderr")], RawLog())
    assert capfdbinary.readouterr() == (b"\xff\x00\n", b"e")


def test_a_table_is_aligned_and_plain_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns line up, there are no colours and no trailing spaces, and control characters are shown as such."""
    rows = [Message(message="a"), Message(message="long\x1b[31m\n")]
    Output(as_json=False).table(rows, [("m", lambda row: row.message), ("n", lambda row: None)])
    assert capsys.readouterr().out == "M           N\na           -\nlong�[31m�  -\n"


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal states are painted, unless NO_COLOR says otherwise."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    Output(as_json=False).record({"state": "failed"})
    assert capsys.readouterr().out == "state  \x1b[31mfailed\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    Output(as_json=False).record({"state": "failed"})
    assert capsys.readouterr().out == "state  failed\n"


def test_events_name_what_they_are_about(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a worker have no session or command: its name is shown."""
    event = EventReply(
        seq=7, kind="worker.ready", session_id=None, command_id=None, subject="worker:out/0", data={}, created_at=WHEN
    )
    events.show_event(Output(as_json=False), event)
    assert capsys.readouterr().out == f"7 {WHEN.isoformat()} worker.ready worker:out/0\n"


def test_lines_of_runners_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Output that comes several lines at once is as many lines, the tail of an error is one; nothing looks damaged."""
    chunk = {"chunk": "one\n\tthree\n"}
    ending = {"exit_code": 1, "stderr": "first\r\nlast\n"}
    for kind, payload in (("runner.stdout", chunk), ("runner.exited", ending)):
        event_stream.show_event(
            Output(as_json=False),
            kanban_pb2.IssueEventRequest(
                task_id="T", repo_name="r", event_type=kind, field="work", payload=json.dumps(payload), timestamp="now"
            ),
        )
    assert capsys.readouterr().out.splitlines() == [
        "now r T runner.stdout one",
        "now r T runner.stdout         three",
        "now r T runner.exited work status 1 | first | last",
    ]


def test_names_of_others_do_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A file's name may hold what moves a cursor or sets a title: sentences, errors and JSON show it harmlessly."""
    name = "\x1b]0;owned\x07\x9b2Jreport\r.xml"
    Output(as_json=False).result(f"{name} has 3 bytes\nand\tmore", {})
    Output(as_json=True).result("", {"name": name})
    print_notice(f"fetching {name}")
    Invocation(programs=None, flags={}).report(NotFoundError(name))  # type: ignore[arg-type]
    out, err = capsys.readouterr()
    assert [part for part in out + err if not part.isprintable() and part not in "\n\t"] == []
    assert "2Jreport\N{REPLACEMENT CHARACTER}.xml has 3 bytes\nand\tmore\n" in out
    assert json.loads(out.splitlines()[-1]) == {"name": name}


def test_cells_are_one_line() -> None:
    """Nothing in a table can break out of its line."""
    assert cell("a\nb\tc") == "a�b�c"
    assert cell({"k": WHEN}) == '{"k": "2026-01-02T03:04:05+00:00"}'
    assert cell(None) == "-"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("1.5m", 90.0), ("2h", 7200.0), ("7d", 604800.0), ("5s", 5.0)]
)
def test_durations(text: str, seconds: float) -> None:
    """A number of seconds, or a number with a unit."""
    assert duration(text, flag="--x") == seconds


def test_words_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Each wrong word is quoted with the flag it was given to."""
    for wrong in ("soon", "-1", "5w", ""):
        with pytest.raises(InvalidInputError, match="--expires-in"):
            duration(wrong, flag="--expires-in")
    with pytest.raises(InvalidInputError, match="--env 'NAME'"):
        pairs(["NAME"], flag="--env")
    with pytest.raises(InvalidInputError, match="NOPE"):
        signal_number("NOPE")
    with pytest.raises(InvalidInputError, match="gone"):
        patch_bytes(tmp_path / "gone")


def test_words_that_can_be_read() -> None:
    """Values keep what follows the first sign, JSON values mean what they say, signals have three spellings."""
    assert pairs(["A=b=c", "D="], flag="--env") == {"A": "b=c", "D": ""}
    assert json_pairs(["n=7", "t=true", "s=text"], flag="--metadata") == {"n": 7, "t": True, "s": "text"}
    assert [signal_number(text) for text in ("9", "kill", "SIGKILL")] == [9, 9, 9]
    assert name_for("git@host:team/tool.git") == name_for("https://host/tool") == "tool"
    assert name_for(os.getcwd()) == Path.cwd().name


def test_json_may_stand_anywhere_before_somebody_elses_flags(alone: Terminal) -> None:
    """--json is ours before the program to run, and the program's own after it."""
    for words in (("--json", "session", "list"), ("session", "--json", "list"), ("session", "list", "--json")):
        assert alone(*words).json == {"items": [], "next_after": None}
    assert alone("run", "--quiet", "--", "echo", "--json").out == "--json\n"
    assert alone("run", "--quiet", "echo", "--json").out == "--json\n"
    for before in (("--json", "run"), ("run", "--json")):
        said = [json.loads(line) for line in alone(*before, "--", "sh", "-c", "echo out; exit 3").out.splitlines()]
        assert [(item.get("stream"), item.get("message")) for item in said[:-1]] == [("stdout", "out")]
        assert (said[-1]["exit"]["exit_code"], said[-1]["status"]) == (3, "failed")
