"""Docs: checks the Markdown of a repository (links, headings, fences) and the versions that it names."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from runners.docs.markdown import Page, problems_of
from runners.docs.versions import stated_versions, wrong_mentions
from runners.kit.errors import JobError
from runners.kit.event import Event
from runners.kit.files import repository_files
from runners.kit.program import run
from runners.kit.text import single_line
from runners.kit.tree import Tree

MAX_BYTES = 4 << 20
MAX_SHOWN = 200


def check(event: Event, tree: Tree) -> Iterator[str]:
    """Check every page, because a changed file can break links of others; problems give a nonzero status."""
    pages = {path: page for path in repository_files(tree) if (page := _page(tree, path))}
    versions = stated_versions(tree)
    shown = 0
    found = [f"version: {problem}" for problem in versions.problems]
    for page in pages.values():
        found += [
            f"{single_line(page.path)}:{line}: {text}" for line, text in _problems(tree, page, pages, versions.current)
        ]
    for problem in found[:MAX_SHOWN]:
        shown += 1
        yield problem
    yield f"{len(pages)} pages checked, version {versions.current or 'not stated'}, {len(found)} problems"
    if found:
        raise JobError(f"{len(found)} problems in the documentation{'' if shown == len(found) else f', {shown} shown'}")


def _page(tree: Tree, path: str) -> Page | None:
    if not path.lower().endswith((".md", ".markdown")):
        return None
    return Page.parse(path, (tree.read(path, limit=MAX_BYTES) or b"").decode("utf-8", "replace"))


def _problems(tree: Tree, page: Page, pages: dict[str, Page], version: str | None) -> list[tuple[int, str]]:
    wrong = wrong_mentions(page, version) if version else []
    return sorted([*problems_of(tree, page, pages), *wrong])


if __name__ == "__main__":
    sys.exit(run("docs", {"doc.sync": check}))
