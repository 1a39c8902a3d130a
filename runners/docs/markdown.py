"""A Markdown page and its problems: broken links, skipped heading levels, unclosed fences."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import unquote, urlsplit

from runners.kit.text import single_line
from runners.kit.tree import Tree

try:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
except ModuleNotFoundError as error:
    raise SystemExit("docs: markdown-it-py is not installed: pip install 'debug-server[runners]'") from error

Problem = tuple[int, str]  # line, what is wrong

_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """One heading of a page."""

    line: int
    level: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One parsed page."""

    path: str
    lines: tuple[str, ...]
    headings: tuple[Heading, ...]
    links: tuple[tuple[int, str], ...]
    fences: tuple[tuple[int, int, str], ...]  # first line, line after the last, the characters that opened it
    prose: tuple[tuple[int, str], ...]  # text outside code

    @classmethod
    def parse(cls, path: str, text: str) -> Page:
        """Parse a text; every text is a valid page."""
        tokens = _PARSER.parse(text)
        return cls(
            path=path,
            lines=tuple(text.split("\n")),
            headings=tuple(_headings(tokens)),
            links=tuple(_links(tokens)),
            fences=tuple(_fences(tokens)),
            prose=tuple(_prose(tokens)),
        )

    @property
    def anchors(self) -> set[str]:
        """What a link can name after ``#``: headings, numbered if repeated, and ids."""
        found: dict[str, int] = {}
        for heading in self.headings:
            slug = slug_of(heading.text)
            found[slug] = found.get(slug, -1) + 1
        numbered = {f"{slug}-{number}" for slug, last in found.items() for number in range(1, last + 1)}
        named = re.findall(r"<[^>]+\s(?:id|name)=[\"']([^\"']+)[\"']", "\n".join(self.lines))
        return {*found, *numbered, *named}


def slug_of(text: str) -> str:
    """A heading's anchor: lower case, without punctuation, spaces as hyphens."""
    kept = (letter for letter in text.strip().lower() if letter in " -_" or unicodedata.category(letter)[0] in "LNM")
    return "".join(kept).replace(" ", "-")


def problems_of(tree: Tree, page: Page, pages: Mapping[str, Page]) -> Iterator[Problem]:
    """The problems of one page; ``pages`` are the targets of links between pages."""
    yield from _skipped_levels(page)
    yield from _open_fences(page)
    for line, target in page.links:
        if wrong := _link_problem(tree, page, target, pages):
            yield line, wrong


def _skipped_levels(page: Page) -> Iterator[Problem]:
    before = 0
    for heading in page.headings:
        if before and heading.level > before + 1:
            yield heading.line, f"heading of level {heading.level} under one of level {before}"
        before = heading.level


def _open_fences(page: Page) -> Iterator[Problem]:
    for first, after, markup in page.fences:
        last = page.lines[after - 1].strip().lstrip("> ") if after - 1 > first else ""
        if not last.startswith(markup) or last.strip(markup[0]):
            yield first + 1, f"the fence {markup} is never closed"


def _link_problem(tree: Tree, page: Page, target: str, pages: Mapping[str, Page]) -> str | None:
    try:
        parts = urlsplit(target)
    except ValueError:
        return f"link {single_line(target, 80)!r} is invalid"
    if parts.scheme or parts.netloc:
        return None  # links to other hosts are not checked: the result would depend on the network
    path = page.path
    if parts.path:
        base = "" if parts.path.startswith("/") else posixpath.dirname(page.path)
        path = posixpath.normpath(posixpath.join(base, unquote(parts.path).lstrip("/")))
        if path.startswith(".."):
            return f"link {single_line(target, 80)!r} leads out of the repository"
        if not (tree.path / path).exists():
            return f"link {single_line(target, 80)!r} leads to a missing file"
    if parts.fragment and path in pages and unquote(parts.fragment).lower() not in pages[path].anchors:
        return f"link {single_line(target, 80)!r} names a missing heading"
    return None


def _headings(tokens: list[Token]) -> Iterator[Heading]:
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.map:
            yield Heading(line=token.map[0] + 1, level=int(token.tag[1:]), text=_plain_text(inline))


def _fences(tokens: list[Token]) -> Iterator[tuple[int, int, str]]:
    for token in tokens:
        if token.type == "fence" and token.map:
            yield token.map[0], token.map[1], token.markup


def _plain_text(inline: Token) -> str:
    return "".join(child.content for child in inline.children or [] if child.type in ("text", "code_inline"))


def _links(tokens: list[Token]) -> Iterator[tuple[int, str]]:
    for token in tokens:
        line = token.map[0] + 1 if token.map else 1
        for child in token.children or []:
            target = child.attrGet("href") if child.type == "link_open" else None
            target = child.attrGet("src") if child.type == "image" else target
            if isinstance(target, str):
                yield line, target
            line += child.type in ("softbreak", "hardbreak")


def _prose(tokens: list[Token]) -> Iterator[tuple[int, str]]:
    for token in tokens:
        if token.type == "inline" and token.map:
            line, text = token.map[0] + 1, ""
            for child in token.children or []:
                if child.type in ("softbreak", "hardbreak"):
                    yield line, text
                    line, text = line + 1, ""
                elif child.type in ("text", "image"):
                    text += child.content
            yield line, text
