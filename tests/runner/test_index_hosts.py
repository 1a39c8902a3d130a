"""Which hosts the configured package indexes need."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from debug_server.runner.egress.policy import parse
from debug_server.runner.environments.index_hosts import IndexHosts, configured_indexes, file_hosts
from debug_server.runner.environments.uv_builder import find_uv

PAGE = """<!DOCTYPE html><html><body>
<a href="https://files.example/a/pip-1.0.whl#sha256=00">pip-1.0.whl</a>
<A class=x HREF='https://files.example/b/pip-2.0.whl'>pip-2.0.whl</A>
<a href="http://user:secret@more.example:8080/pip-3.0.whl?x=1&amp;y=2">pip-3.0.whl</a>
<a href="../../files/pip-4.0.whl">pip-4.0.whl</a>
<a href="ftp://old.example/pip-5.0.whl">pip-5.0.whl</a>
</body></html>"""


class Index(BaseHTTPRequestHandler):
    """An index with one project."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        """The page of pip, and nothing else."""
        self.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(200 if self.path == "/simple/pip/" else 404)
        self.end_headers()
        if self.path == "/simple/pip/":
            self.wfile.write(PAGE.encode())

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Host and port of an index."""
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    Index.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def nothing(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing is configured."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}


def test_an_index_names_the_hosts_of_its_files(index: str) -> None:
    """Absolute links, relative ones, and each host once; other schemes are left out."""
    found = file_hosts(f"http://{index}/simple")
    assert found == ("https://files.example", "http://user:secret@more.example:8080", f"http://{index}")
    assert file_hosts(f"http://{index}/other") is None
    assert file_hosts("file:///srv/wheels") == ()


def test_credentials_of_the_index_are_sent(index: str) -> None:
    """As pip sends those in the URL."""
    assert file_hosts(f"http://me:p%40ss@{index}/simple/")
    ((path, credentials),) = Index.asked
    assert path == "/simple/pip/"
    assert credentials == "Basic " + base64.b64encode(b"me:p@ss").decode()


def test_the_policy_has_the_index_and_its_files(index: str, nothing: dict[str, str]) -> None:
    """And the hosts are looked up once."""
    hosts = IndexHosts()
    environ = {**nothing, "UV_DEFAULT_INDEX": f"http://{index}/simple"}
    policy = parse(["indexes"], indexes=hosts.urls(environ, None))
    assert policy.indexes() == [f"https://{index}", "https://files.example:443", "https://more.example:8080"]
    assert hosts.urls(environ, None)
    assert len(Index.asked) == 1


def test_an_index_that_does_not_answer_is_asked_again(index: str, nothing: dict[str, str]) -> None:
    """Without its answer the policy has the index alone."""
    hosts = IndexHosts()
    environ = {**nothing, "UV_DEFAULT_INDEX": f"http://{index}/broken"}
    for _ in range(2):
        assert hosts.urls(environ, None) == [f"http://{index}/broken"]
    assert len(Index.asked) == 2


def test_all_settings_of_uv_and_pip_count(nothing: dict[str, str], tmp_path: Path) -> None:
    """Variables, uv.toml and pip's settings; folders need no network."""
    variables = {
        "UV_DEFAULT_INDEX": "https://a.example/simple",
        "UV_INDEX": "mine=https://b.example/x https://c.example",
    }
    assert configured_indexes({**nothing, **variables, "UV_FIND_LINKS": "/srv,https://d.example"}, None) == [
        *("https://a.example/simple", "https://b.example/x", "https://c.example", "https://d.example"),
    ]
    settings = tmp_path / "uv.toml"
    settings.write_text(
        'extra-index-url = ["https://f.example"]\n'
        '[[index]]\nurl = "https://g.example"\ndefault = true\n[[index]]\nurl = "https://h.example"\n'
    )
    named = {**nothing, "UV_CONFIG_FILE": str(settings)}
    assert configured_indexes(named, None) == ["https://g.example", "https://f.example", "https://h.example"]
    pip = {**nothing, "PIP_INDEX_URL": "https://i.example/simple", "PIP_EXTRA_INDEX_URL": "https://j.example"}
    assert configured_indexes(pip, None) == ["https://i.example/simple", "https://j.example"]
    assert configured_indexes({**nothing, **variables, "UV_NO_INDEX": "1"}, None) == []


def test_without_settings_it_is_the_default_of_uv(nothing: dict[str, str]) -> None:
    """Which uv itself names; an additional index does not replace it."""
    (default,) = configured_indexes(nothing, find_uv())
    assert default.startswith("https://")
    more = {**nothing, "UV_INDEX": "https://more.example"}
    assert configured_indexes(more, find_uv()) == [default, "https://more.example"]
    assert configured_indexes(nothing, None) == []
