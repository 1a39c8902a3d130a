"""Where uv finds packages: pip's settings as uv's variables, for users who have configured only pip.

Standard library only, and no import of ours: ``scripts/bootstrap.py`` loads this file before anything is installed.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HINT = (
    "packages come from the indexes in UV_DEFAULT_INDEX, UV_INDEX, UV_FIND_LINKS or uv.toml, "
    "or, if none is set, from those in pip's settings"
)
_SOURCES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX")
_TOML_SOURCES = ("index", "index-url", "extra-index-url", "find-links", "no-index")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@\"]+@")
_TRUE = ("1", "true", "yes", "on", "y", "t")


def uv_variables(environ: Mapping[str, str], *, prefix: Path | None = None) -> dict[str, str]:
    """The variables that give uv the settings of pip; settings that uv already has are not replaced.

    ``prefix``: a virtual environment whose ``pip.conf`` is read as well.
    """
    settings = pip_settings(environ, prefix=prefix)
    found = {"UV_INSECURE_HOST": _words(settings, "trusted-host"), "SSL_CERT_FILE": settings.get("cert", "")}
    if not has_own_sources(environ):
        found |= _sources(settings)
    return {name: value for name, value in found.items() if value and name not in environ}


def _sources(settings: Mapping[str, str]) -> dict[str, str]:
    found = {"UV_FIND_LINKS": ",".join(map(_expanded, settings.get("find-links", "").split()))}
    if settings.get("no-index", "").lower() in _TRUE:
        return {**found, "UV_NO_INDEX": "1"}
    found |= {"UV_DEFAULT_INDEX": _words(settings, "index-url"), "UV_INDEX": _words(settings, "extra-index-url")}
    # pip takes the best version from all indexes; uv takes it from the first index that has the package.
    return {**found, "UV_INDEX_STRATEGY": "unsafe-best-match"} if any(found.values()) else {}


def _words(settings: Mapping[str, str], name: str) -> str:
    return " ".join(settings.get(name, "").split())


def _expanded(place: str) -> str:
    return place if "://" in place else os.path.expanduser(place)  # noqa: PTH111  (a text for another program)


def has_own_sources(environ: Mapping[str, str]) -> bool:
    """Whether uv itself was told where packages come from, by a variable or in its file."""
    if any(environ.get(name) for name in _SOURCES):
        return True
    return any(name in table for table in uv_tables(environ) for name in _TOML_SOURCES)


def uv_tables(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """The tables of uv's own settings files, in ascending order of precedence."""
    return [table for path in _uv_files(environ) for table in _tables(path)]


def names_default_index(folder: Path) -> bool:
    """Whether a project names its own default index; a variable set by us would override it."""
    tables = [*_tables(folder / "uv.toml"), *_tables(folder / "pyproject.toml", "tool", "uv")]
    return any("index-url" in table or _has_default(table.get("index")) for table in tables)


def settings_variables(environ: Mapping[str, str], folder: Path, root: Path) -> dict[str, str]:
    """The variables that keep uv, started in ``folder``, from reading settings above the project's ``root``.

    uv uses the first ``uv.toml`` or ``[tool.uv]`` from its working directory upwards, whoever wrote it. If the project
    has none, the user's file, or else the system's, is named in ``UV_CONFIG_FILE``.
    """
    if environ.get("UV_NO_CONFIG") or environ.get("UV_CONFIG_FILE") or has_settings(folder, root):
        return {}
    files = [str(path) for path in _uv_files(environ) if path.is_file()]
    return {"UV_CONFIG_FILE": files[-1]} if files else {"UV_NO_CONFIG": "1"}


def has_settings(folder: Path, root: Path) -> bool:
    """Whether the project has settings for uv of its own, in ``folder`` or above it up to its ``root``."""
    inside = [path for path in (folder, *folder.parents) if path.is_relative_to(root)]
    return any((path / "uv.toml").is_file() or _tables(path / "pyproject.toml", "tool", "uv") for path in inside)


def chosen_sources(environ: Mapping[str, str], *, prefix: Path | None = None) -> str:
    """The package sources for the fingerprint, as one string without passwords: packages may differ by source."""
    variables = {**environ, **uv_variables(environ, prefix=prefix)}
    found = {name: variables[name] for name in (*_SOURCES, "UV_INDEX_STRATEGY") if variables.get(name)}
    tables = [{name: table[name] for name in _TOML_SOURCES if name in table} for table in uv_tables(environ)]
    text = json.dumps([found, [table for table in tables if table]], sort_keys=True, default=str)
    return _CREDENTIALS.sub("", text)


def _has_default(indexes: Any) -> bool:
    return isinstance(indexes, list) and any(isinstance(item, dict) and item.get("default") for item in indexes)


def _uv_files(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("UV_NO_CONFIG"):
        return
    if named := environ.get("UV_CONFIG_FILE"):
        yield Path(named)
        return
    for folder in (*_system_folders(environ), _user_folder(environ)):
        yield folder / "uv" / "uv.toml"


def _tables(path: Path, *keys: str) -> list[dict[str, Any]]:
    """A table of a TOML file and its table ``pip``; none of an unreadable file, which uv reports."""
    try:
        table: Any = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return []
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return [item for item in (table, table.get("pip")) if isinstance(item, dict)] if isinstance(table, dict) else []


def pip_settings(environ: Mapping[str, str], *, prefix: Path | None = None) -> dict[str, str]:
    """What pip is configured with for an installation, by the names of its long options."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in _pip_files(environ, prefix):
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(path.read_text("utf-8"))
        except (OSError, ValueError, configparser.Error):  # pip itself will complain about it
            continue
        for name, found in sections.items():
            if parser.has_section(name):
                found.update((key.replace("_", "-"), value) for key, value in parser.items(name))
    variables = {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("PIP_") and value
    }
    return sections["global"] | sections["install"] | variables


def _pip_files(environ: Mapping[str, str], prefix: Path | None) -> Iterator[Path]:
    """pip's configuration files, in ascending order of precedence."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    for folder in _system_folders(environ):
        yield folder / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    if home := environ.get("HOME"):
        yield Path(home) / ".pip" / "pip.conf"
    yield _user_folder(environ) / "pip" / "pip.conf"
    if prefix is not None:
        yield prefix / "pip.conf"
    if named:
        yield Path(named)


def _system_folders(environ: Mapping[str, str]) -> list[Path]:
    return [Path(item) for item in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":") if item] + [Path("/etc")]


def _user_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/nonexistent") / ".config")
