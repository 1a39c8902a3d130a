"""Patches of any bytes over REST: a text where it is UTF-8, base64 where it is not."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx
import pytest

from debug_server.client import DebugServerClient
from tests.servers import ServerProcess

PATCH = b"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-hello\n+gr\xfc\xdf\n"
TEXT = b"gr\xfc\xdf\n"


def test_bytes_round_trip(client: DebugServerClient) -> None:
    """A patch that is not UTF-8 arrives as it is; the diff has it as base64, and applies again."""
    session = client.create_session("project", "main", patch=PATCH)
    diff = client.diff_session(session.id)
    assert (diff.exact, diff.patch_base64) == (False, client.session_patch(session.id))
    again = client.create_session("project", "main", patch=diff.patch_base64)
    assert client.session_patch(again.id) == diff.patch_base64
    for item in (session, again):
        client.close_session(item.id)


def test_bytes_for_one_command(client: DebugServerClient) -> None:
    """exec and runs take them, too."""
    done = client.exec_command(["cat", "a.txt"], repository="project", patch=PATCH)
    assert done.stdout == TEXT
    run = client.start_run("project", "main", ["cat", "a.txt"], patch=PATCH)
    assert client.wait_command(run.command.id).exit_code == 0
    assert b"".join(piece.data for piece in client.read_log(run.command.id).pieces) == TEXT


def test_text_may_have_any_character(client: DebugServerClient) -> None:
    """A patch of text with a NUL, and bytes that are UTF-8, travel as text."""
    patch = PATCH.decode("latin-1").replace("\n+gr", "\n+\0gr")
    for given in (patch, patch.encode()):
        done = client.exec_command(["cat", "a.txt"], repository="project", patch=given)
        assert done.stdout.decode() == "\0grüß\n"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"patch_base64": "?"}, "must be base64"),
        ({"patch": "x", "patch_base64": base64.b64encode(PATCH).decode()}, "give one of them"),
    ],
)
def test_what_is_no_patch(server: ServerProcess, repository: Path, fields: dict[str, str], reason: str) -> None:
    """A text that is not base64, and two patches at once, are refused."""
    body = {"repository": "project", **fields}
    headers = {"Authorization": f"Bearer {server.token}"}
    answer = httpx.post(f"{server.base_url}/sessions", json=body, headers=headers, timeout=100)
    assert answer.status_code == 422
    assert reason in answer.text
