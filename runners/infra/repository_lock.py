"""The lock of a repository: a file that says who asked the others to keep their hands off, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator

from runners.kit.event import Event
from runners.kit.refusal import Refusal
from runners.kit.tree import Tree
from runners.kit.words import single_line

LOCK_FILE = ".repository-lock.json"
ACTIONS = ("lock", "unlock", "status")


def lock(event: Event, tree: Tree) -> Iterator[str]:
    """Take, give back or show the lock; it is given back by its holder, or by force."""
    action = event.details.get("action", "lock")
    if action not in ACTIONS:
        raise Refusal(f"lock action {single_line(str(action), 60)!r} is not one of {', '.join(ACTIONS)}")
    with tree.lock():
        held = read_lock(tree)
        if action == "status":
            yield f"locked by {held['holder']} since {held['since']}" if held else "not locked"
        elif action == "lock":
            yield _take(event, tree, held)
        else:
            yield _give_back(event, tree, held)


def holder_of(event: Event) -> str:
    """Who asks: named in the payload, otherwise the task."""
    holder = single_line(str(event.details.get("holder") or event.task_id), 100)
    if not holder:
        raise Refusal("a lock needs a holder: the event has neither a task nor a holder in its payload")
    return holder


def read_lock(tree: Tree) -> dict[str, str] | None:
    """The lock as it is; a file that cannot be read counts as somebody's lock."""
    data = tree.read(LOCK_FILE, limit=1 << 16)
    if data is None:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    found = value if isinstance(value, dict) else {}
    return {key: single_line(str(found.get(key) or "unknown")) for key in ("holder", "since", "reason")}


def require_free(event: Event, tree: Tree) -> None:
    """Refuse to change a repository that somebody else has locked."""
    held = read_lock(tree)
    if held and held["holder"] != holder_of(event):
        raise Refusal(f"the repository is locked by {held['holder']} since {held['since']}: {held['reason']}")


def _take(event: Event, tree: Tree, held: dict[str, str] | None) -> str:
    holder = holder_of(event)
    if held and held["holder"] == holder:
        return f"already locked by {holder} since {held['since']}"
    require_free(event, tree)
    reason = single_line(str(event.details.get("reason") or event.plain)) or "no reason given"
    record = {"holder": holder, "since": event.when.isoformat(timespec="seconds"), "reason": reason}
    tree.write(LOCK_FILE, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return f"locked by {holder}"


def _give_back(event: Event, tree: Tree, held: dict[str, str] | None) -> str:
    if held is None:
        return "was not locked"
    if event.details.get("force") is not True:
        require_free(event, tree)
    tree.remove(LOCK_FILE)
    return f"unlocked, was held by {held['holder']}"
