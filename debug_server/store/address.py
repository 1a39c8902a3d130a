"""Database URLs: which one applies, and what it names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from debug_server.config import load_runner
from debug_server.errors import ConfigurationError

DATABASE_FILE, SEAL_KEY_FILE = "data/metadata.db", "data/seal.key"  # in the data folder
URL_VARIABLES = ("DEBUG_SERVER_DB_URL", "DATABASE_URL", "METADATA_DB_URL")
SEAL_KEY_VARIABLE = "DEBUG_SERVER_SEAL_KEY_FILE"

_FORMS = "use sqlite:///relative/path, sqlite:////absolute/path, a plain path or postgresql://host/name"


def default_url(environ: Mapping[str, str], data_folder: Path | None = None) -> str:
    """The URL in the first of URL_VARIABLES that is set; else SQLite in the data folder.

    ``data_folder`` defaults to the one that applies in the current directory.
    """
    named = next((environ[name] for name in URL_VARIABLES if environ.get(name)), None)
    return named or f"sqlite:///{data_folder or load_runner(environ=environ).data}/{DATABASE_FILE}"


def is_postgres(url: str) -> bool:
    """Whether the URL names a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def sqlite_path(url: str) -> Path:
    """The file that an ``sqlite:`` URL or a plain path names."""
    text = url
    if url.startswith("sqlite:"):
        if not url.startswith("sqlite:///"):
            raise ConfigurationError(f"database URL {url!r} is not valid: {_FORMS}")
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


def seal_key_path(url: str, environ: Mapping[str, str], data_folder: Path | None = None) -> Path:
    """The file of the key that seals child environments; ``data_folder`` as in ``default_url``."""
    if not is_postgres(url):
        return sqlite_path(url).with_name("seal.key")
    named = environ.get(SEAL_KEY_VARIABLE)
    return Path(named) if named else (data_folder or load_runner(environ=environ).data) / SEAL_KEY_FILE
