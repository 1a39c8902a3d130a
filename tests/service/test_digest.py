"""The digest of a log: what it finds, that its offsets are right, that it is bounded."""

from __future__ import annotations

import random
import re
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from debug_server.messages import Digest
from debug_server.service.digest import LogDigest
from debug_server.service.log_patterns import failing_test

PYTEST = b"""\
collected 3 items

tests/test_a.py .F                                                       [ 66%]
=================================== FAILURES ===================================
    def test_b():
>       assert 1 == 2
E       assert 1 == 2

tests/test_a.py:5: AssertionError
=========================== short test summary info ============================
FAILED tests/test_a.py::test_b[a b] - assert 1 == 2
ERROR tests/test_c.py - ImportError: no module
==================== 1 failed, 1 passed, 1 error in 0.10s ======================
"""
TRACEBACK = b"""\
Traceback (most recent call last):
  File "/w/main.py", line 9, in <module>
    main()
  File "/w/lib.py", line 3, in main
    raise ValueError("no such colour")
ValueError: no such colour
"""


def digest_of(data: bytes, piece: int = 1 << 16, start: int = 0, max_tokens: int = 100_000) -> Digest:
    """Fed in pieces."""
    digest = LogDigest(start)
    for position in range(0, len(data), piece):
        digest.feed(data[position : position + piece])
    return digest.finish(max_tokens)


def noise(size: int, seed: int = 1) -> bytes:
    """Lines that differ, and say nothing."""
    chance = random.Random(seed)
    lines, length = [], 0
    while length < size:
        words = "".join(chance.choices("abcdefghij ", k=chance.randrange(20, 80)))
        lines.append(f"{words}\n".encode())
        length += len(lines[-1])
    return b"".join(lines)


def test_pytest_output() -> None:
    """Failing ids, the first error and where it was raised."""
    digest = digest_of(PYTEST)
    assert [(item.framework, item.id) for item in digest.failing] == [
        ("pytest", "tests/test_a.py::test_b[a b]"),
        ("pytest", "tests/test_c.py"),
    ]
    assert digest.first_error is not None
    assert digest.first_error.text == "E       assert 1 == 2"
    [raised] = digest.tracebacks
    assert (raised.where, raised.text) == ("tests/test_a.py:5", "assert 1 == 2")
    assert digest.text == PYTEST.decode()


@pytest.mark.parametrize(
    ("line", "framework", "name"),
    [
        ("FAIL: test_x (tests.m.Case.test_x)", "unittest", "tests.m.Case.test_x"),
        ("ERROR: test_x (tests.m.Case)", "unittest", "tests.m.Case.test_x"),
        ("tests/a.py::test_x[1-2] FAILED        [ 50%]", "pytest", "tests/a.py::test_x[1-2]"),
        ("[gw1] [ 50%] FAILED tests/a.py::test_x", "pytest", "tests/a.py::test_x"),
        ("    --- FAIL: TestX/sub_case (0.00s)", "go", "TestX/sub_case"),
        ("test module::case ... FAILED", "cargo", "module::case"),
        ("[  FAILED  ] Suite.Case (3 ms)", "googletest", "Suite.Case"),
        ("\t 12 - case_name (Failed)", "ctest", "case_name"),
        ("  \u25cf suite \u203a does a thing", "jest", "suite \u203a does a thing"),
        (" FAIL  src/a.test.ts > suite > does a thing", "vitest", "src/a.test.ts > suite > does a thing"),
        ("rspec ./spec/a_spec.rb:12 # does a thing", "rspec", "./spec/a_spec.rb:12"),
        ("not ok 3 - does a thing # SKIP", "tap", "does a thing"),
    ],
)
def test_failing_ids_of_frameworks(line: str, framework: str, name: str) -> None:
    """Each framework's way of saying that a test failed."""
    assert failing_test(line.encode()) == (framework, name)


@pytest.mark.parametrize("line", ["ok 1 - fine", "PASSED tests/a.py::test_x", "0 FAILED", "ERROR something else"])
def test_lines_that_name_no_test(line: str) -> None:
    """Nothing is made up."""
    assert failing_test(line.encode()) is None


@pytest.mark.parametrize(
    ("text", "error", "where"),
    [
        (TRACEBACK, "ValueError: no such colour", "/w/lib.py:3 in main"),
        (b"thread 'main' panicked at src/main.rs:4:5:\nboom\n", "thread 'main' panicked at src/main.rs:4:5:", None),
        (b"panic: runtime error: index out of range\n", "panic: runtime error: index out of range", None),
        (b'Exception in thread "main" java.lang.Error: x\n\tat a.B.c(B.java:3)\n', None, "a.B.c(B.java:3)"),
        (b"TypeError: x is not a function\n    at run (/w/a.js:1:2)\n", None, "run (/w/a.js:1:2)"),
    ],
)
def test_traceback_heads(text: bytes, error: str | None, where: str | None) -> None:
    """What was raised and where, for several languages; the bytes are those of the traceback."""
    before = noise(9000)
    digest = digest_of(before + text + noise(9000, 2))
    [raised] = digest.tracebacks
    assert raised.offset == len(before)
    assert error is None or raised.text == error
    assert where is None or raised.where == where


@pytest.mark.parametrize("piece", [1, 7, 1000, 1 << 16, 1 << 20])
def test_pieces_do_not_matter(piece: int) -> None:
    """Wherever the bytes are parted, the digest is the same, also of a traceback that spans two blocks."""
    size = (1 << 18) - 60 if piece > 7 else 9000
    data = noise(size) + TRACEBACK + b"x 1\n" * 5 + PYTEST + noise(9000, 3)
    assert digest_of(data, piece) == digest_of(data, len(data))
    assert len(digest_of(data, piece).tracebacks) == 2


def test_first_error_prefers_certainty() -> None:
    """Counts of zero and mere mentions do not win over an error message."""
    data = b"0 errors, no failures\nerror handling is on\nerrors: 0\n" + noise(7000) + b"fatal: not a repository\n"
    found = digest_of(data).first_error
    assert found is not None
    assert data[found.offset : found.end] == b"fatal: not a repository"
    weak = digest_of(b"all good\nsomething failed here\n").first_error
    assert weak is not None
    assert weak.text == "something failed here"
    assert digest_of(b"0 failed, no errors\n").first_error is None


@pytest.mark.parametrize(
    "line",
    [
        "E: Unable to locate package nosuch",
        "npm ERR! code E404",
        "npm error code ENOENT",
        "ld: undefined symbol: frobnicate",
        "/usr/bin/ld: main.c:(.text+0x9): undefined reference to `frobnicate'",
        "/usr/bin/ld: cannot find -lnosuch",
        "not ok 2 - adds numbers",
    ],
)
def test_errors_without_the_word(line: str) -> None:
    """The first error is found where it says so in its tool's own way, also as the first line of the log."""
    after = b"\nerror: 1 thing failed\n"
    for before in (b"", b"all is well\n", noise(9000)):
        found = digest_of(before + line.encode() + after).first_error
        assert found is not None and (found.text, found.offset) == (line, len(before))


def test_a_test_that_is_expected_to_fail() -> None:
    """TAP's TODO is neither a failing test nor an error."""
    digest = digest_of(b"not ok 1 - later # TODO write it\nnot ok 2 - now\n")
    assert [test.id for test in digest.failing] == ["now"]
    assert digest.first_error is not None and digest.first_error.text == "not ok 2 - now"


def test_no_line_is_shown_twice() -> None:
    """A run of similar lines among the first or the last ones is not shown again as repeated."""
    data = b"start\n" + b"tick 1\n" * 2000 + noise(9000) + b"tock 1\n" * 3000 + noise(9000, 2) + b"tuck 1\n" * 2000
    for tokens in (300, 1000, 100_000):
        digest = digest_of(data, max_tokens=tokens)
        offsets = [item.offset for item in (*digest.head, *digest.tail, *digest.repeats)]
        assert len(offsets) == len(set(offsets))
    assert [item.text for item in digest.repeats] == ["tock 1"] and digest.omitted.repeats == 0


def test_repeats_are_folded() -> None:
    """Lines that differ in digits only become one with a count, across blocks, in the middle too."""
    middle = b"".join(b"waiting %d of 9 seconds\n" % i for i in range(40_000))
    data = noise(20_000) + middle + noise(20_000, 2)
    digest = digest_of(data)
    longest = digest.repeats[0]
    assert (longest.count, longest.text, longest.last) == (
        40_000,
        "waiting 0 of 9 seconds",
        "waiting 39999 of 9 seconds",
    )
    assert data[longest.offset : longest.end] == middle[:-1]


def test_terminal_noise_is_taken_off() -> None:
    """Colours go; of a progress bar the last state stays."""
    data = b"\x1b[31mFAILED\x1b[0m tests/a.py::test_x\n10%\r50%\r100% done\r\n"
    digest = digest_of(data)
    assert [item.id for item in digest.failing] == ["tests/a.py::test_x"]
    assert digest.text == "FAILED tests/a.py::test_x\n100% done\n"


def test_a_digest_is_bounded() -> None:
    """Memory and size stay small: many megabytes, one endless line, a thousand failing tests, hostile lines."""
    hostile = b"::" * 1000 + b" FAIL Error\n"
    tests = b"".join(b"FAILED tests/a.py::test_%d - boom\n" % i for i in range(3000))
    blocks = [noise(100_000, index) for index in range(20)]
    tracemalloc.start()
    try:
        digest = LogDigest()
        for block in blocks:
            digest.feed(block * 5)
            digest.feed(b"x" * 500_000)
            digest.feed(hostile * 20)
            digest.feed(b"  Traceback (most recent call last):\n" * 2000)
        digest.feed(b"\n" + tests)
        done = digest.finish(100_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20
    assert len(done.model_dump_json()) < 64 << 10
    assert (len(done.failing), done.failing_count) == (40, 1000)
    assert done.end > 20 << 20


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from([*PYTEST.splitlines(), *TRACEBACK.splitlines(), b"", b"\xff\0", b"1", b"2"]), max_size=400)
)
def test_offsets_point_at_what_they_name(lines: list[bytes]) -> None:
    """Every excerpt is found again in the log at its offsets."""
    data = b"\n".join(lines)
    digest = digest_of(data, 997, start=0)
    for item in [digest.first_error, *digest.head, *digest.tail, *digest.repeats]:
        if item is not None:
            first = data[item.offset : item.end].split(b"\n")[0].decode("utf-8", "replace")
            assert re.sub("[\x00\ufffd]", "?", first).rstrip() == re.sub("[\x00\ufffd]", "?", item.text)
    for test in digest.failing:
        assert test.id.encode() in data[test.offset : test.end]
    for raised in digest.tracebacks:
        assert 0 <= raised.offset < raised.end <= len(data)


@pytest.mark.parametrize("max_tokens", [200, 300, 500, 1000, 2000, 10_000])
@pytest.mark.parametrize("name", ["noise", "tests", "mixed", "quotes", "short"])
def test_a_digest_fits_its_budget_and_says_what_it_leaves_out(name: str, max_tokens: int) -> None:
    """As JSON and as text it has at most four characters for each token; what is missing is counted."""
    failing = b"".join(b"FAILED tests/a.py::test_%s - AssertionError\n" % (b"x" * n) for n in range(200))
    data = {
        "noise": noise(200_000),
        "tests": failing,
        "mixed": noise(50_000) + TRACEBACK * 20 + failing + noise(50_000),
        "quotes": b'"\\' * 100_000 + b"\n" + b'error: "\\"\n' * 1000,
        "short": PYTEST * 4,
    }[name]
    digest = digest_of(data, max_tokens=max_tokens)
    assert len(digest.model_dump_json()) <= 4 * max_tokens
    assert len(digest.as_text()) <= 4 * max_tokens
    assert digest.omitted.failing == digest.failing_count - len(digest.failing)
    shown = digest.lines if digest.text is not None else sum(item.count for item in (*digest.head, *digest.tail))
    assert digest.omitted.lines == digest.lines - shown
    if digest.text is None and digest.omitted.lines:
        assert f"left out: {digest.omitted.lines} lines" in digest.as_text()


def test_the_first_error_and_the_last_lines_stay_longest() -> None:
    """A small budget shows the error, some failing tests and the very last lines."""
    data = noise(20_000) + b"".join(b"FAILED tests/a.py::test_%d - boom\n" % n for n in range(100)) + b"the end\n"
    digest = digest_of(data, max_tokens=400)
    assert digest.first_error is not None and digest.failing and digest.tail[-1].text == "the end"
    assert digest.omitted.failing > 0


def test_a_digest_of_parts() -> None:
    """What was skipped is counted, and the last lines are those after the gap."""
    digest = LogDigest()
    digest.feed(b"first\n" + noise(9000))
    digest.skip(1000)
    digest.feed(b"error: late\nlast\n")
    done = digest.finish(10_000)
    assert done.omitted.skipped_bytes == 1000 and done.text is None
    assert done.head[0].text == "first" and [item.text for item in done.tail] == ["error: late", "last"]
    assert done.first_error is not None and done.end - len(b"last\n") == done.first_error.end + 1
