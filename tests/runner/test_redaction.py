"""Declared secrets never reach the disk, however they are written; everything else does, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_server.errors import InvalidInputError
from debug_server.model import ExitReason, Limits
from debug_server.runner.keeper.masking import REDACTED
from debug_server.runner.keeper.redaction import Redactor
from debug_server.runner.spec import CommandSpec
from debug_server.surfaces.cli.run import command_spec
from tests.running import Bench, python

SECRET = "p4ss/with+signs.and$more"
LINES = "-----BEGIN-----\nabcdefghij0123456789\nzyxwvutsrq9876543210\n-----END-----"


def _pass(redactor: Redactor, pieces: list[bytes]) -> bytes:
    return b"".join(map(redactor.feed, pieces)) + redactor.end()


@given(
    st.lists(
        st.sampled_from([SECRET, SECRET[:9], SECRET[3:], "abab", "ababab", "ab", "x", "\n", "\u00e4"]), max_size=12
    ),
    st.data(),
)
def test_how_it_is_cut_changes_nothing(words: list[str], data: st.DataObject) -> None:
    """Cut anywhere, also within a secret, the same bytes come out, and no secret among them."""
    text = "".join(words).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    values = [SECRET, "ababab"]
    whole = _pass(Redactor(values), [text])
    assert _pass(Redactor(values), pieces) == whole
    assert SECRET.encode() not in whole


def test_only_a_possible_beginning_is_held_back() -> None:
    """What cannot be a secret is passed on at once."""
    redactor = Redactor([SECRET])
    assert redactor.feed(b"prompt> ") == b"prompt> "
    assert redactor.feed(b"say p4") == b"say "
    assert redactor.may_flush
    assert redactor.feed(b"X") == b"p4X"
    assert redactor.feed(SECRET[:-1].encode()) == b""
    assert not redactor.may_flush  # nearly all of it: it is not given away because the program paused


@given(
    st.lists(
        st.tuples(st.sampled_from([SECRET, SECRET[:5], SECRET[:-1], "x", "abab", "\n"]), st.booleans()), max_size=8
    ),
    st.data(),
)
def test_a_program_that_pauses_shows_less_than_half(words: list[tuple[str, bool]], data: st.DataObject) -> None:
    """Wherever it pauses for so long that what is held is written: of a secret less than half is, all else whole."""
    redactor, found, text = Redactor([SECRET, "ababab"]), b"", ""
    for word, pauses in words:
        cut = data.draw(st.integers(0, len(word)))
        for piece in (word[:cut], word[cut:]):
            found += redactor.feed(piece.encode())
            if pauses and redactor.may_flush:
                found += redactor.flush_held()
        text += word
    found += redactor.end()
    half = SECRET[: (len(SECRET) + 1) // 2].encode()
    assert half + REDACTED not in found and SECRET.encode() not in found
    assert found.count(REDACTED) == text.count(SECRET) + text.count("ababab")
    if REDACTED not in found:
        assert found.decode() == text


def test_of_two_secrets_the_longer_one_counts() -> None:
    """A secret that begins with another one is hidden whole."""
    assert _pass(Redactor(["abcd", "abcdefgh"]), [b"abcd", b"efgh|abcd|"]) == b"[redacted]|[redacted]|"


@pytest.mark.parametrize("text", [LINES, LINES.replace("\n", "\r\n"), "x zyxwvutsrq9876543210 y"])
def test_a_value_of_several_lines(text: str) -> None:
    """Whole, as a terminal prints it, or one line of it."""
    found = _pass(Redactor([LINES]), [text.encode()])
    assert REDACTED in found
    assert b"zyxwvutsrq" not in found


def _on_disk(bench: Bench) -> bytes:
    files = [path for path in bench.settings.paths.logs_dir.rglob("*") if path.is_file()]
    return b"".join(path.read_bytes() for path in files)


@pytest.mark.parametrize("tty", [False, True])
def test_a_declared_secret_does_not_reach_the_log(held: Bench, tty: bool) -> None:
    """Written in two pieces to stdout and stderr: log, tail and listed command lines show none of it."""
    # More than half of it first: that is held however long the program is kept from writing the rest.
    text = (
        "import os, sys, time\nvalue = os.environ['API_PASS'].encode()\n"
        "for fd in (1, 2):\n os.write(fd, b'<' + value[:13]); time.sleep(0.05); os.write(fd, value[13:] + b'>\\n')\n"
    )
    result = held.run(python(text), env={"API_PASS": SECRET}, secrets=["API_PASS"], tty=tty)
    log = held.log(result)
    assert (log["stdout"] + log["stderr"]).replace(b"\r", b"") == b"<[redacted]>\n" * 2
    assert SECRET not in json.dumps(result.exit.to_json())
    assert SECRET.encode() not in _on_disk(held)


def test_a_pause_shows_what_is_no_secret(bench: Bench) -> None:
    """A prompt that looks like the beginning of a secret appears while the program waits."""
    text = "import os, time\nos.write(1, b'p4')\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
    started = bench.start(python(text), env={"API_PASS": SECRET}, secrets=["API_PASS"])
    started.await_output(b"p4")
    (bench.workspace / "go").touch()
    assert started.result().exit_reason is ExitReason.EXITED


def test_listed_command_lines_hide_it(bench: Bench) -> None:
    """A process that has the secret on its command line is listed without it."""
    started = bench.start(
        ["sh", "-c", 'sleep 1000 & exec sh -c "echo ready; sleep 1000; : $API_PASS"'],
        env={"API_PASS": SECRET},
        secrets=["API_PASS"],
    )
    started.await_output(b"ready")
    bench.supervisor.pipeline.cancel(started.command.id)
    result = started.result()
    assert "[redacted]" in json.dumps(result.exit.evidence)
    assert SECRET not in json.dumps(result.exit.evidence)


def test_a_long_command_line_is_cut_after_it_was_hidden(bench: Bench) -> None:
    """Where the listed part of a command line ends amid a secret, no part of that is listed."""
    text = f"echo ready; sleep 1000; : {'x' * 130}{' $API_PASS' * 30}"
    started = bench.start(["sh", "-c", f'sh -c "{text}"'], env={"API_PASS": SECRET}, secrets=["API_PASS"])
    started.await_output(b"ready")
    bench.supervisor.pipeline.cancel(started.command.id)
    listed = json.dumps(started.result().exit.evidence)
    assert "[redac" in listed and SECRET[:4] not in listed


def test_a_hook_shows_none(make_bench: Callable[..., Bench]) -> None:
    """What a pre-kill program says of the variables of the processes is hidden, too."""
    bench = make_bench()
    hook = ["sh", "-c", 'for pid in $DEBUG_SERVER_PIDS; do tr "\\0" "\\n" < /proc/$pid/environ; done; echo looked']
    started = bench.start(
        ["sh", "-c", "echo ready; sleep 1000; true"], env={"API_PASS": SECRET}, secrets=["API_PASS"], pre_kill=hook
    )
    started.await_output(b"ready")
    bench.supervisor.pipeline.cancel(started.command.id)
    said = bench.log(started.result())["system"]
    assert b"API_PASS=[redacted]" in said and b"looked" in said
    assert SECRET.encode() not in _on_disk(bench)


def test_the_rest_of_a_secret_is_hidden_after_a_pause(bench: Bench) -> None:
    """Its beginning was written because nothing followed for a while: that stays all that is on the disk."""
    text = (
        "import os, time\nvalue = os.environ['API_PASS'].encode()\nos.write(1, value[:3])\n"
        "while not os.path.exists('go'): time.sleep(0.02)\nos.write(1, value[3:] + b'|')\n"
    )
    started = bench.start(python(text), env={"API_PASS": SECRET}, secrets=["API_PASS"])
    started.await_output(SECRET[:3].encode())
    (bench.workspace / "go").touch()
    assert bench.log(started.result())["stdout"] == SECRET[:3].encode() + REDACTED + b"|"


def test_bytes_are_exact_without_a_secret(bench: Bench) -> None:
    """A variable that nobody declared is the command's own affair."""
    result = bench.run(["sh", "-c", 'printf %s "$API_PASS"'], env={"API_PASS": SECRET})
    assert bench.log(result)["stdout"] == SECRET.encode()


@pytest.mark.parametrize(
    ("env", "names", "words"),
    [({}, ["GONE"], "'GONE' is not a variable"), ({"PIN": "123"}, ["PIN"], "fewer than 4 bytes")],
)
def test_what_cannot_be_hidden_is_refused(env: dict[str, str], names: list[str], words: str) -> None:
    """A name without a value, and a value that stands in every second line."""
    with pytest.raises(InvalidInputError, match=words):
        CommandSpec(["true"], env, secrets=names)


def test_the_command_line_passes_a_secret_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """``run --secret NAME`` gives the command the variable, and a name that is not set is an error."""
    monkeypatch.setenv("API_PASS", SECRET)
    asked = partial(command_spec, ["true"], limits=Limits(), require=[], variables=[], secrets=["API_PASS"], tty=False)
    spec = asked()
    assert (spec.env, list(spec.secrets)) == ({"API_PASS": SECRET}, ["API_PASS"])
    monkeypatch.delenv("API_PASS")
    with pytest.raises(InvalidInputError, match="not set"):
        asked()


def test_half_a_secret_is_held_over_a_pause(bench: Bench) -> None:
    """Another stream's short beginning is written meanwhile; the secret that is completed later is hidden whole."""
    text = (
        "import os, time\nvalue = os.environ['API_PASS'].encode()\nos.write(1, value[:-1]); os.write(2, value[:2])\n"
        "while not os.path.exists('go'): time.sleep(0.02)\nos.write(1, value[-1:])\n"
    )
    started = bench.start(python(text), env={"API_PASS": SECRET}, secrets=["API_PASS"])
    started.await_output(SECRET[:2].encode())
    (bench.workspace / "go").touch()
    log = bench.log(started.result())
    assert (log["stdout"], log["stderr"]) == (REDACTED, SECRET[:2].encode())
