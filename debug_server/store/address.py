"""Which database a URL means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from debug_server.errors import ConfigurationError

DEFAULT_URL = "sqlite:///.artifacts/data/metadata.db"
URL_VARIABLES = ("DEBUG_SERVER_DB_URL", "DATABASE_URL", "METADATA_DB_URL")
SEAL_KEY_VARIABLE = "DEBUG_SERVER_SEAL_KEY_FILE"
DEFAULT_SEAL_KEY = ".artifacts/data/seal.key"

_FORMS = "use sqlite:///relative/path, sqlite:////absolute/path, a plain path or postgresql://host/name"


def default_url(environ: Mapping[str, str]) -> str:
    """The URL that the environment names, the first of URL_VARIABLES that is set; else the SQLite default."""
    return next((environ[name] for name in URL_VARIABLES if environ.get(name)), DEFAULT_URL)


def is_postgres(url: str) -> bool:
    """Whether the URL names a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def sqlite_path(url: str) -> Path:
    """The file that an ``sqlite:`` URL or a plain path names."""
    text = url
    if url.startswith("sqlite:"):
        if not url.startswith("sqlite:///"):
            raise ConfigurationError(f"database URL {url!r} is not understood: {_FORMS}")
        text = url.removeprefix("sqlite:///")
    elif "://" in url:
        raise ConfigurationError(f"database URL scheme {url.partition('://')[0]!r} is not supported: {_FORMS}")
    if not text or text == ":memory:" or "\0" in text:
        raise ConfigurationError(f"database URL {url!r} names no file: {_FORMS}")
    return Path(text)


def without_secrets(url: str) -> str:
    """Host, port and name of a database URL, for messages."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def seal_key_path(url: str, environ: Mapping[str, str]) -> Path:
    """Where the key lies that seals child environments."""
    if is_postgres(url):
        return Path(environ.get(SEAL_KEY_VARIABLE) or DEFAULT_SEAL_KEY)
    return sqlite_path(url).with_name("seal.key")
