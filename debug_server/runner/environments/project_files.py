"""Reads the files in which a project declares itself; a file that cannot be read says nothing."""

from __future__ import annotations

import configparser
import os
import stat
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from debug_server.runner.environments.requirements import logical_lines

_MOST_BYTES = 16 << 20  # of one file


@dataclass(frozen=True, slots=True)
class IniFile:
    """The sections of a setup.cfg or tox.ini."""

    sections: dict[str, dict[str, str]]

    def text(self, section: str, *names: str) -> str:
        """The first of these values that is there, else an empty text."""
        values = self.sections.get(section, {})
        return next((values[name].strip() for name in names if name in values), "")

    def lines(self, section: str, name: str) -> list[str]:
        """The lines of a value, without comments."""
        return list(logical_lines(self.text(section, name)))


def names_in(folder: Path) -> list[str]:
    """The names in a folder, in order; empty if it cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - a tenth of the time of iterdir, and read for each command
    except OSError:
        return []


def read_text(path: Path) -> str:
    """The text of a regular file; empty if it cannot be read. A pipe that a command put there is not waited for."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(_MOST_BYTES).decode("utf-8", "replace") if is_regular else ""
    except OSError:
        return ""


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; empty if it cannot be read. It is shared: do not change it."""
    return _parse_toml(read_text(path))


@lru_cache(maxsize=32)  # one run asks a dozen times
def _parse_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):  # RecursionError: nested too deeply
        return {}


def read_project(folder: Path) -> dict[str, Any]:
    """The content of ``folder/pyproject.toml``."""
    return read_toml(folder / "pyproject.toml")


def read_ini(path: Path) -> IniFile:
    """The content of a setup.cfg or tox.ini."""
    return parse_ini(read_text(path))


@lru_cache(maxsize=32)
def parse_ini(text: str) -> IniFile:
    """The sections of ``text``; none if it is not understood."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names of scripts and extras keep their case
    try:
        parser.read_string(text)
    except configparser.Error:
        return IniFile({})
    return IniFile({name: dict(parser.items(name)) for name in parser.sections()})


def value_at(data: Any, *names: str) -> Any:
    """The value at a path of nested tables; None if there is none."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def table_at(data: dict[str, Any], *names: str) -> dict[str, Any]:
    """The table at a path of nested tables; empty if there is none."""
    found = value_at(data, *names)
    return found if isinstance(found, dict) else {}


def texts_of(value: object) -> list[str]:
    """The texts in a value that is a text or a list."""
    values = value if isinstance(value, list | tuple) else [value]
    return [item for item in values if isinstance(item, str)]
