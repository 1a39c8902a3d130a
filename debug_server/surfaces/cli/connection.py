"""Which server the command line speaks to: flags above variables above the file that ``configure`` writes."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.config import load, setting
from debug_server.config.kinds import TEXT, Kind
from debug_server.errors import ConfigurationError

DEFAULT_BASE_URL = "http://127.0.0.1:8000"
HOME_VARIABLE = "DEBUG_SERVER_HOME"
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _word(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError(text)
    return _WORDS[text.lower()]


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)  # noqa: TRY004 - a setting's kind speaks by ValueError
    return value


_TRUTH = Kind(expected="true or false", check=_truth, read=_word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where a server is and who we are there; ``base_url`` is None when there is none."""

    base_url: str | None = setting("Of the server.", TEXT, default=None, variable="DEBUG_SERVER_URL")
    token: str | None = setting("Sent with every request.", TEXT, default=None, variable="DEBUG_SERVER_TOKEN")
    verify_tls: bool = setting(
        "Whether the server's certificate must be valid.", _TRUTH, default=True, variable="DEBUG_SERVER_VERIFY_TLS"
    )

    @property
    def server(self) -> str | None:
        """The server's address; a token alone means the usual one; None means this machine, without a server."""
        return self.base_url or (DEFAULT_BASE_URL if self.token else None)


def config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the settings are kept."""
    home = environ.get(HOME_VARIABLE)
    try:
        return (Path(home).expanduser() if home else Path.home() / ".debug-server") / "config.toml"
    except RuntimeError as error:
        raise ConfigurationError(f"no home folder is known: set {HOME_VARIABLE}") from error


def find_connection(flags: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Connection:
    """From flags, variables and the file."""
    path = config_file(environ)
    return load(Connection, files=[path] if path.is_file() else [], environ=environ, flags=flags).value


def save_connection(changes: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Path:
    """Change the file, which only its owner can read."""
    path = config_file(environ)
    kept = load(Connection, files=[path] if path.is_file() else [], flags=changes).value
    values = {"base_url": kept.base_url or DEFAULT_BASE_URL, "token": kept.token, "verify_tls": kept.verify_tls}
    # A JSON text or truth value is one of TOML, too.
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items() if value is not None]
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(path, "".join(lines))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _write(path: Path, text: str) -> None:
    """All or nothing; a draft of mkstemp is readable by its owner only from its first moment."""
    descriptor, draft = tempfile.mkstemp(prefix=".config-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(draft).replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(draft).unlink()
