"""Replies as programs use them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from debug_server.messages import CommandReply, LogPiece, Message, WorkerList

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_list_is_its_items() -> None:
    """It can be iterated and counted, and still says where the next page begins."""
    page = WorkerList(items=[{"name": "a"}, {"name": "b"}], next_after=2)
    assert [item["name"] for item in page] == ["a", "b"]
    assert (len(page), page.next_after) == (2, 2)


@pytest.mark.parametrize("status", ["pending", "running", "succeeded", "failed", "cancelled"])
def test_a_command_has_ended_in_its_terminal_states(status: str) -> None:
    """Neither waiting nor running."""
    known = {"id": 1, "session_id": 1, "sequence": 1, "command": ["true"], "cancel_requested": False, "log_bytes": 0}
    nothing = dict.fromkeys(("cwd", "exit_code", "exit_reason", "exit", "started_at", "finished_at"))
    reply = CommandReply.model_validate({**known, **nothing, "status": status, "created_at": WHEN, "updated_at": WHEN})
    assert reply.ended == (status not in ("pending", "running"))


def test_a_piece_of_a_log_knows_its_end() -> None:
    """The offset after its bytes, which stay bytes."""
    piece = LogPiece(offset=5, stream="stdout", data=b"\xff\x00\n", timestamp=WHEN, command_id=1)
    assert (piece.end, piece.data) == (8, b"\xff\x00\n")


def test_what_a_newer_server_adds_is_ignored() -> None:
    """A client keeps working when replies get more fields."""
    assert Message.model_validate_json('{"message": "done", "more": 1}') == Message(message="done")
