"""Manages a block of ``.gitignore``: the rules of a profile, plus those that events add, minus those they remove."""

from __future__ import annotations

import json
from collections.abc import Iterator

from runners.infra.repository_lock import LOCK_FILE
from runners.kit import managed_block
from runners.kit.errors import JobError
from runners.kit.event import Event
from runners.kit.text import single_line
from runners.kit.tree import Tree

FILE = ".gitignore"
BEGIN = "# >>> managed by the infra runner"
END = "# <<< managed by the infra runner"
MAX_RULES = 1000
MAX_RULE_LENGTH = 500

# Never committed: secrets, and the lock file of this runner.
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
    """Write the managed block; lines outside of it are kept."""
    details = event.details
    added = _rules(details.get("rules", _listed(event.plain)))
    removed = _rules(details.get("remove", []))
    with tree.lock():
        text = (tree.read(FILE) or b"").decode("utf-8", "surrogateescape")
        kept = managed_block.content(text, begin=BEGIN, end=END)
        before = _profile(details["profile"]) if details.get("profile") else tuple(kept) or _default_rules(event)
        rules = [rule for rule in dict.fromkeys([*before, *kept, *added]) if rule not in removed]
        if len(rules) > MAX_RULES:
            raise JobError(f"{len(rules)} ignore rules (limit {MAX_RULES})")
        changed = tree.write(
            FILE, managed_block.with_block(text, rules, begin=BEGIN, end=END).encode("utf-8", "surrogateescape")
        )
    yield f"{FILE} {'written' if changed else 'unchanged'}: {len(rules)} managed rules"


def _default_rules(event: Event) -> tuple[str, ...]:
    """The rules of a repository that has no block yet."""
    return _profile(event.settings.get("gitignore_profile") or "base")


def _profile(name: object) -> tuple[str, ...]:
    if not isinstance(name, str) or name not in PROFILES:
        raise JobError(f"ignore profile {single_line(str(name), 60)!r} is not one of {', '.join(PROFILES)}")
    return PROFILES[name]


def _listed(text: str) -> list[object]:
    """The rules of a payload that is not an object: a JSON list, or one rule per line."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [*text.splitlines()]
    return value if isinstance(value, list) else [value]


def _rules(value: object) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise JobError("rules and remove must be lists of strings")
    return [rule for item in items[: MAX_RULES + 1] if (rule := _rule(item))]


def _rule(item: object) -> str:
    rule = item.strip() if isinstance(item, str) else ""
    if rule in (BEGIN, END) or rule != single_line(rule, MAX_RULE_LENGTH):
        raise JobError(
            f"ignore rule {single_line(rule, 60)!r} is not one printable line of at most {MAX_RULE_LENGTH} characters"
        )
    return "" if rule.startswith("#") else rule
