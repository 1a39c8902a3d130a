"""The hosts that the configured package indexes need, for a network policy that allows nothing else."""

from __future__ import annotations

import base64
import html
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from debug_server.runner.environments.package_index import uv_tables, uv_variables

_DEFAULTS = ("UV_DEFAULT_INDEX", "UV_INDEX_URL")
_MORE = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
_SECONDS = 10.0
_PAGE_BYTES = 4 << 20
_MOST_HOSTS = 16
_PROJECT = "pip"  # every mirror of the public index has it
_DEFAULT_IN_HELP = re.compile(r"\(by\s+default:\s+<(https://[^>\s]+)>\)")
_LINK = re.compile(rb"""<a\s[^>]*?href\s*=\s*["']([^"'#]+)""", re.IGNORECASE)
_NAMED = re.compile(r"[A-Za-z0-9_.-]+=(?=[a-z]+://)")


class IndexHosts:
    """Finds the hosts once for each index; an index that did not answer is asked again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, tuple[str, ...]] = {}

    def urls(self, environ: Mapping[str, str], uv: str | None, *, prefix: Path | None = None) -> list[str]:
        """The configured indexes, uv's default if none replaces it, and the hosts where they keep their files."""
        indexes = configured_indexes(environ, uv, prefix=prefix)
        hosts = [host for index in indexes for host in self._file_hosts(index)]
        return list(dict.fromkeys([*indexes, *hosts]))

    def _file_hosts(self, index: str) -> tuple[str, ...]:
        with self._lock:
            if index not in self._found and (hosts := file_hosts(index)) is not None:
                self._found[index] = hosts
            return self._found.get(index, ())


def configured_indexes(environ: Mapping[str, str], uv: str | None, *, prefix: Path | None = None) -> list[str]:
    """The URLs of the indexes from the settings of uv and pip, and uv's own default if none replaces it."""
    variables = {**environ, **uv_variables(environ, prefix=prefix)}
    if variables.get("UV_NO_INDEX"):
        return _urls(variables, ["UV_FIND_LINKS"])
    defaults, more = _urls(variables, _DEFAULTS), _urls(variables, _MORE)
    for table in uv_tables(environ):
        defaults += [str(table["index-url"])] if "index-url" in table else []
        more += [str(url) for name in ("extra-index-url", "find-links") for url in table.get(name, [])]
        for entry in _tables(table.get("index")):
            (defaults if entry.get("default") else more).append(str(entry.get("url", "")))
    if not defaults and uv is not None and (default := _default_of(uv)):
        defaults.append(default)
    return [url for url in dict.fromkeys([*defaults, *more]) if "://" in url]


def _urls(variables: Mapping[str, str], names: Iterable[str]) -> list[str]:
    words = [word for name in names for word in variables.get(name, "").replace(",", " ").split()]
    return [_NAMED.sub("", word, count=1) for word in words]


def _tables(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


@cache
def _default_of(uv: str) -> str | None:
    """The index that uv uses when none is configured; its help has it."""
    command = [uv, "pip", "install", "--help"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, env={})
    except (OSError, subprocess.SubprocessError):
        return None
    found = _DEFAULT_IN_HELP.search(done.stdout)
    return found[1] if found else None


def file_hosts(index: str) -> tuple[str, ...] | None:
    """The origins of the files that the page of one project links to; None if the index did not answer.

    An index may keep its files on another host, and says so nowhere else.
    """
    if urlsplit(index).scheme not in ("http", "https"):
        return ()
    request = _request(f"{index.rstrip('/')}/{_PROJECT}/")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            base, page = answer.geturl(), answer.read(_PAGE_BYTES)
    except (OSError, ValueError):
        return None
    links = [urljoin(base, html.unescape(link.decode("utf-8", "replace"))) for link in _LINK.findall(page)]
    origins = [urlsplit(link) for link in links]
    found = dict.fromkeys(f"{each.scheme}://{each.netloc}" for each in origins if each.scheme in ("http", "https"))
    return tuple(found)[:_MOST_HOSTS]


def _request(url: str) -> urllib.request.Request:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=host)), headers={"Accept": "text/html"})
    if at:
        name, _, password = user.partition(":")
        credentials = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {credentials}")
    return request
