"""The pages for people: the front page and the reference."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

import httpx
import pytest

from debug_server.messages import ROUTES
from debug_server.surfaces.http.html_pages import reference_page
from tests.servers import unmount_below
from tests.surfaces.http.serving import SECONDS, Served

VOID = {"meta", "br"}
LOADING = {"script", "link", "img", "iframe", "object", "embed"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server."""
    root = tmp_path_factory.mktemp("shared")
    try:
        found = Served(root)
        try:
            yield found
        finally:
            found.close()
    finally:
        unmount_below(root)


class Page(HTMLParser):
    """What a page says and links to; fails on tags that are not closed and on anything that loads something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.said = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        found = dict(attrs)
        assert tag not in LOADING
        assert not {"src", "onclick", "onload"} & found.keys()
        self.links += [found["href"] or ""] if "href" in found else []
        self.ids |= {found["id"] or ""} if "id" in found else set()
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        """Close it."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.said += data


def test_the_front_page(shared: Served) -> None:
    """A browser gets a page, a terminal gets text; both name the documents and need no token."""
    page = httpx.get(shared.url, headers={"Accept": "text/html,*/*"}, timeout=SECONDS)
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    read = Page(page.text)
    for path in read.links:
        assert httpx.get(f"{shared.url}{path}", timeout=SECONDS).status_code == 200, path
    text = httpx.get(shared.url, timeout=SECONDS)
    assert text.headers["content-type"].startswith("text/plain")
    for said in (read.said, text.text):
        assert f"http://127.0.0.1:{shared.port}/api/v1/runs" in said
        assert f"curl http://127.0.0.1:{shared.port}/api/v1/exec -H" in said


def test_the_reference(shared: Served) -> None:
    """The page names every operation, and its links lead somewhere."""
    page = httpx.get(f"{shared.url}/docs", timeout=SECONDS)
    assert "default-src 'none'" in page.headers["content-security-policy"]
    read = Page(page.text)
    assert {link.removeprefix("#") for link in read.links if link.startswith("#")} <= read.ids
    assert read.ids >= {name for name in ROUTES if name not in ("health", "session_patch")}
    for route in ROUTES.values():
        assert route.path in read.said


def test_hostile_text_stays_text(shared: Served) -> None:
    """What a caller or a document says is never read as a tag."""
    headers = {"Accept": "text/html", "Host": "<script>alert(1)</script>"}
    page = httpx.get(shared.url, headers=headers, timeout=SECONDS)
    assert page.status_code >= 400 or "<script" not in page.text
    document = shared.app.openapi()
    hostile = {**document, "info": {"title": "<script>", "version": "<b>", "description": "<i>"}}
    assert "<script" not in reference_page(hostile)
