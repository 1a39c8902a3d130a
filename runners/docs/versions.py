"""The project's version, and pages that name another one."""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

from runners.docs.markdown import Page
from runners.kit.tree import Tree

NUMBER = r"v?(\d+\.\d+(?:\.\d+)?(?:[-.](?:a|b|rc|alpha|beta|dev)[\w.]*)?)(?![\w.]*\d)"
# Not "Python version 3.11": a mention is at the start of a line, or says "current version".
MENTION = re.compile(rf"(?:^\W*version:? +|\bcurrent version(?: is)?:? +){NUMBER}", re.IGNORECASE)
BADGE = re.compile(r"/badge/version-v?(\d+\.\d+(?:\.\d+)?)-")
NEWEST = re.compile(rf"^(?:version )?\[?{NUMBER}\]?", re.IGNORECASE)
CHANGELOGS = ("changelog", "changes", "history", "news")


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The version in the project's files, or the problem if they differ."""

    current: str | None
    problems: tuple[str, ...] = ()


def stated_versions(tree: Tree) -> Versions:
    """The version in VERSION, pyproject.toml and package.json, which must agree."""
    found = dict(_stated(tree))
    if len(set(found.values())) > 1:
        problem = ", ".join(f"{path} says {version}" for path, version in found.items())
        return Versions(current=None, problems=(problem,))
    return Versions(current=next(iter(found.values()), None))


def _stated(tree: Tree) -> Iterator[tuple[str, str]]:
    readers = {"VERSION": _plain, "pyproject.toml": _pyproject, "package.json": _package}
    for path, reader in readers.items():
        if data := tree.read(path, limit=1 << 20):
            version = reader(data.decode("utf-8", "replace"))
            if version and re.fullmatch(NUMBER, version):
                yield path, version.removeprefix("v")


def _plain(text: str) -> str:
    return text.strip()


def _pyproject(text: str) -> str:
    try:
        return str(tomllib.loads(text).get("project", {}).get("version", ""))
    except (tomllib.TOMLDecodeError, AttributeError):
        return ""


def _package(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return str(value.get("version", "")) if isinstance(value, dict) else ""


def wrong_mentions(page: Page, version: str) -> list[tuple[int, str]]:
    """Lines that give another version as the project's; a changelog must have an entry for the version."""
    name = posixpath.basename(page.path).lower()
    if name.startswith(CHANGELOGS):
        return _changelog(page, version)
    # Cards, decisions and old sprints name the version of their time.
    if "/" in page.path and not page.path.startswith("docs/"):
        return []
    found = [(line, match[1]) for line, text in page.prose for match in MENTION.finditer(text)]
    found += [(number, match[1]) for number, line in enumerate(page.lines, 1) for match in BADGE.finditer(line)]
    return [(line, f"says version {named}, the project is at {version}") for line, named in found if named != version]


def _changelog(page: Page, version: str) -> list[tuple[int, str]]:
    entries = [(heading.line, match[1]) for heading in page.headings if (match := NEWEST.match(heading.text))]
    if entries and version not in [named for _, named in entries]:
        line, newest = entries[0]
        return [(line, f"the newest entry is {newest}, the project is at {version}")]
    return []
