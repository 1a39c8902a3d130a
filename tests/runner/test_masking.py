"""What is kept of a relayed program's stderr: every line, and no secret in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debug_server.runner.keeper.masking import MAX_LINE, Mask

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VALUE = "p4ss/with+signs.and$more"
ENV = {"OPENAI_API_KEY": VALUE, "PATH": "/usr/bin:/bin", "SHORT_TOKEN": "abc", "KEYBOARD": "a-long-layout"}
SECRETS = [
    f"connecting with {VALUE} now",
    "Authorization: Bearer abcdef.ghijkl-123456",
    "sent bearer abcdefghij",
    "key sk-" + "proj-" + LETTERS,
    "x ghp_" + LETTERS + "0123456789",
    "AIza" + "SyA-" + LETTERS + "01234",
    "url https://user:hunter2hunter@host/x",
    '{"access_token": "abcdefgh-ijkl", "n": 1}',
    "PASSWORD=correcthorse",
    "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl",
]
HARMLESS = [
    "listening on http://127.0.0.1:8080/path?x=1",
    "max_tokens: 128000, tokens=77",
    "layout a-long-layout of abc",
    "a monkey wrote 'token' on the wall",
    "\u00e4\u00f6\u00fc \x1b[31mred\x1b[0m",
]


def kept(text: bytes, cuts: list[int]) -> bytes:
    """What becomes of bytes that arrive in pieces."""
    mask, found, at = Mask(ENV), b"", 0
    for cut in [*sorted(cuts), len(text)]:
        found += mask.feed(text[at:cut])
        at = cut
    return found + mask.end()


@pytest.mark.parametrize("line", SECRETS)
def test_a_secret_does_not_pass(line: str) -> None:
    """By its form, by its name, or because it is a variable of the program's own; the rest of the line stays."""
    found = kept(line.encode(), []).decode()
    assert "[redacted]" in found
    hidden = found.partition("[redacted]")[0]
    assert line.startswith(hidden)
    secret = line.removeprefix(hidden)[:6]
    assert secret not in found.removeprefix(hidden)


def test_a_value_is_hidden_whole_and_by_its_lines() -> None:
    """Also where a known form would end amid it, and when the lines of a long one come one after the other."""
    lines = ["-----BEGIN-----", "abcdefghij0123456789", "zyxwvutsrq9876543210", "-----END-----"]
    mask = Mask({"SERVICE_PASSWORD": "p4ss, with; signs", "DEPLOY_KEY": "\n".join(lines)}, ["s1;,"])
    assert mask.feed(b"password=p4ss, with; signs.\nsecret: s1;,\n") == b"password=[redacted]\nsecret: [redacted]\n"
    assert b"".join(mask.feed(f"{line}\r\n".encode()) for line in lines) == b"[redacted]\r\n" * 4


def test_other_words_pass() -> None:
    """Addresses, counts, colours and short values are left alone."""
    text = "\n".join(HARMLESS).encode()
    assert kept(text, []) == text


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*SECRETS, *HARMLESS, ""]), min_size=1, max_size=8), st.data())
def test_how_it_arrives_changes_nothing(lines: list[str], data: st.DataObject) -> None:
    """Cut anywhere, also within a secret, the same bytes come out."""
    text = "\n".join(lines).encode()
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=5))
    assert kept(text, cuts) == kept(text, [])


def test_a_line_without_end_is_left_out_and_told() -> None:
    """It costs no memory, and the lines around it are kept."""
    piece = b"x" * 10_000
    mask = Mask({})
    found = mask.feed(b"before\n") + b"".join(mask.feed(piece) for _ in range(10)) + mask.feed(b"\nafter\n")
    assert found == b"before\n[a line of 100000 bytes was removed: it could contain part of a secret]\nafter\n"
    assert mask.feed(b"y" * MAX_LINE + b"\n") == b"y" * MAX_LINE + b"\n"
