"""Lists by pages: every one of them, from its first item to its last."""

from __future__ import annotations

from typing import Any

import pytest

from debug_server import messages as m
from debug_server.messages import OPERATIONS
from tests.surfaces.http.serving import Served, answered

# Replies with items that are no part of a longer list: what the operation made or changed, all of it.
WHOLE = {"fork_session", "restart_worker", "reset_worker", "stop_worker"}
COUNT = 3


def lists() -> list[str]:
    """The operations that answer with a part of something that grows."""
    return [name for name, item in OPERATIONS.items() if "items" in item.reply.model_fields and name not in WHOLE]


@pytest.mark.parametrize("name", lists())
def test_every_list_is_paged(name: str) -> None:
    """Each has a cursor, a bound with a default, and tells where the next page begins."""
    operation = OPERATIONS[name]
    assert issubclass(operation.request, m.PageRequest)
    assert "next_after" in operation.reply.model_fields


@pytest.fixture(scope="module")
def filled(shared: Served) -> dict[str, str]:
    """A server with a few of everything; the path of each list."""
    for number in range(COUNT - 1):
        body = {"name": f"repo{number}", "remote_url": str(shared.remote.path)}
        answered(shared.admin.post("/repository/init", json=body), 201)
    session = [shared.session() for _ in range(COUNT)][-1]
    for number in range(COUNT):
        shared.run(session, "sh", "-c", f"echo {number} > left{number}", artifacts=["left*"])
    for _ in range(COUNT):
        shared.token(["sessions:read"])
    return {name: OPERATIONS[name].route.path.format(session_id=session) for name in lists()}


def numbers(page: dict[str, Any]) -> list[int]:
    """What tells the items apart."""
    return [item.get("id") or item["seq"] for item in page["items"]]


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("name", lists())
def test_pages_are_the_list(shared: Served, filled: dict[str, str], name: str, limit: int) -> None:
    """Page after page, by the cursor of the one before, gives what one large page has: nothing twice, nothing lost."""
    whole = numbers(answered(shared.admin.get(filled[name], params={"limit": 1000}), 200))
    found: list[int] = []
    after: int | None = 0
    while after is not None:
        page = answered(shared.admin.get(filled[name], params={"limit": limit, "after": after}), 200)
        assert len(page["items"]) <= limit
        found += numbers(page)
        assert page["items"] or not whole or name == "read_events", "a page that is full and last has no next one"
        after = page["next_after"] if page["items"] else None
    assert found == whole
    assert len(found) >= COUNT or name == "list_workers"
