"""The lock of a repository: a file that says who asks others not to change it, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator

from runners.kit.errors import JobError
from runners.kit.event import Event
from runners.kit.text import single_line
from runners.kit.tree import Tree

LOCK_FILE = ".repository-lock.json"
ACTIONS = ("lock", "unlock", "status")


def lock(event: Event, tree: Tree) -> Iterator[str]:
    """Lock, unlock or show the lock; only its holder can unlock, or ``force``."""
    action = event.details.get("action", "lock")
    if action not in ACTIONS:
        raise JobError(f"lock action {single_line(str(action), 60)!r} is not one of {', '.join(ACTIONS)}")
    with tree.lock():
        held = read_lock(tree)
        if action == "status":
            yield f"locked by {held['holder']} since {held['since']}" if held else "not locked"
        elif action == "lock":
            yield _lock(event, tree, held)
        else:
            yield _unlock(event, tree, held)


def holder_of(event: Event) -> str:
    """The holder in the payload, or the task."""
    holder = single_line(str(event.details.get("holder") or event.task_id), 100)
    if not holder:
        raise JobError("a lock needs a holder: the event has neither a task nor a holder in its payload")
    return holder


def read_lock(tree: Tree) -> dict[str, str] | None:
    """The lock, or None; an unreadable file counts as a lock of an unknown holder."""
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
    """JobError if another holder has locked the repository."""
    held = read_lock(tree)
    if held and held["holder"] != holder_of(event):
        raise JobError(f"the repository is locked by {held['holder']} since {held['since']}: {held['reason']}")


def _lock(event: Event, tree: Tree, held: dict[str, str] | None) -> str:
    holder = holder_of(event)
    if held and held["holder"] == holder:
        return f"already locked by {holder} since {held['since']}"
    require_free(event, tree)
    reason = single_line(str(event.details.get("reason") or event.plain)) or "no reason given"
    record = {"holder": holder, "since": event.when.isoformat(timespec="seconds"), "reason": reason}
    tree.write(LOCK_FILE, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return f"locked by {holder}"


def _unlock(event: Event, tree: Tree, held: dict[str, str] | None) -> str:
    if held is None:
        return "was not locked"
    if event.details.get("force") is not True:
        require_free(event, tree)
    tree.remove(LOCK_FILE)
    return f"unlocked, was held by {held['holder']}"
