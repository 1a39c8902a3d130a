"""The block of ``.gitignore`` that is managed: a profile's rules and those that events add or remove."""

from __future__ import annotations

import json
from collections.abc import Iterator

from runners.infra.repository_lock import LOCK_FILE
from runners.kit import managed_block
from runners.kit.event import Event
from runners.kit.refusal import Refusal
from runners.kit.tree import Tree
from runners.kit.words import single_line

FILE = ".gitignore"
BEGIN = "# >>> managed by the infra runner"
END = "# <<< managed by the infra runner"
MOST_RULES = 1000
LONGEST_RULE = 500

# What no repository wants to commit: secrets, and the lock that this runner writes.
BASE = (".env", ".env.*", "!.env.example", "*.pem", "*.key", f"/{LOCK_FILE}")
PROFILES = {
    "base": BASE,
    "python": (*BASE, "__pycache__/", "*.py[cod]", ".venv/", "build/", "dist/", "*.egg-info/", ".pytest_cache/"),
    "node": (*BASE, "node_modules/", "dist/", "coverage/", "*.tsbuildinfo", "npm-debug.log*"),
    "models": (*BASE, "*.gguf", "*.safetensors", "*.bin", "models/blobs/"),
    "docs": (*BASE, "_build/", "site/"),
    "none": (f"/{LOCK_FILE}",),
}


def ignore(event: Event, tree: Tree) -> Iterator[str]:
    """Write the managed block: profile, added rules, without those removed; other lines stay."""
    details = event.details
    added = _rules(details.get("rules", _listed(event.plain)))
    removed = _rules(details.get("remove", []))
    with tree.lock():
        text = (tree.read(FILE) or b"").decode("utf-8", "surrogateescape")
        kept = managed_block.content(text, begin=BEGIN, end=END)
        before = _profile(details["profile"]) if details.get("profile") else tuple(kept) or _usual(event)
        rules = [rule for rule in dict.fromkeys([*before, *kept, *added]) if rule not in removed]
        if len(rules) > MOST_RULES:
            raise Refusal(f"{len(rules)} ignore rules; at most {MOST_RULES} are managed")
        changed = tree.write(
            FILE, managed_block.replaced(text, rules, begin=BEGIN, end=END).encode("utf-8", "surrogateescape")
        )
    yield f"{FILE} {'written' if changed else 'unchanged'}: {len(rules)} managed rules"


def _usual(event: Event) -> tuple[str, ...]:
    """What a repository without a block begins with; later its block says what it has, without what was removed."""
    return _profile(event.settings.get("gitignore_profile") or "base")


def _profile(name: object) -> tuple[str, ...]:
    if not isinstance(name, str) or name not in PROFILES:
        raise Refusal(f"ignore profile {single_line(str(name), 60)!r} is not one of {', '.join(PROFILES)}")
    return PROFILES[name]


def _listed(text: str) -> list[object]:
    """The rules of a payload that is no object: a JSON list, or one a line."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [*text.splitlines()]
    return value if isinstance(value, list) else [value]


def _rules(value: object) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise Refusal("rules and remove are lists of texts")
    return [rule for item in items[: MOST_RULES + 1] if (rule := _rule(item))]


def _rule(item: object) -> str:
    rule = item.strip() if isinstance(item, str) else ""
    if rule in (BEGIN, END) or rule != single_line(rule, LONGEST_RULE):
        raise Refusal(
            f"ignore rule {single_line(rule, 60)!r} is not one visible line of at most {LONGEST_RULE} characters"
        )
    return "" if rule.startswith("#") else rule
