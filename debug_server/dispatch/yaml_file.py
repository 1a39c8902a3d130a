"""YAML files read with the line of every key, so that errors name file and line."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import yaml

from debug_server.disk import read_trusted
from debug_server.errors import ConfigurationError

_STRING, _NULL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_BOOLEANS = {"true": True, "false": False}
_MAX_BYTES = 4 << 20


class Section:
    """A mapping in a file; read its keys, then ``finish`` refuses the keys that were not read."""

    def __init__(self, path: Path, node: yaml.Node, what: str) -> None:
        self.path = path
        self.what = what
        self.line = node.start_mark.line + 1
        if not isinstance(node, yaml.MappingNode):
            fail(path, self.line, f"{what} must be a mapping")
        self._keys: dict[str, tuple[int, yaml.Node]] = {}
        self._known: set[str] = set()
        for key, value in node.value:
            self._add(key, value)

    def _add(self, key: yaml.Node, value: yaml.Node) -> None:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            fail(self.path, line, f"a key of {self.what} must be a string")
        if key.value in self._keys:
            first = self._keys[key.value][0]
            fail(self.path, line, f"{self.what} has the key {key.value!r} twice, first in line {first}: remove one")
        self._keys[key.value] = (line, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, name: str) -> bool:
        return name in self._keys

    def line_of(self, name: str) -> int:
        """The line of a key, or else of the section."""
        return self._keys[name][0] if name in self._keys else self.line

    def refuse(self, name: str, message: str) -> NoReturn:
        """Raise ConfigurationError at a key."""
        fail(self.path, self.line_of(name), message)

    def node(self, name: str) -> yaml.Node | None:
        """The value of a key; None if it is missing, empty or null."""
        self._known.add(name)
        found = self._keys[name][1] if name in self._keys else None
        return None if found is None or found.tag == _NULL else found

    def entry(self, name: str) -> Section:
        """The mapping below a key that exists."""
        self._known.add(name)
        return Section(self.path, self._keys[name][1], f"{self.what}.{name}")

    def section(self, name: str) -> Section | None:
        """The mapping below a key, or None."""
        node = self.node(name)
        return None if node is None else Section(self.path, node, f"{self.what}.{name}" if self.what else name)

    def sections(self, name: str) -> list[Section]:
        """The list of mappings below a key."""
        node = self.node(name)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.refuse(name, f"{name!r} of {self.what} must be a list")
        return [Section(self.path, item, f"{self.what}.{name}") for item in node.value]

    def text(self, name: str) -> str | None:
        """A string exactly as written, even if YAML would read it as a date or a number."""
        node = self.node(name)
        if node is None:
            return None
        if not isinstance(node, yaml.ScalarNode):
            self.refuse(name, f"{name!r} of {self.what} must be a string")
        if any(ord(letter) < 32 for letter in node.value):
            self.refuse(name, f"{name!r} of {self.what} contains a control character")
        return str(node.value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        node = self.node(name)
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            self.refuse(name, f"{name!r} of {self.what} must be a list of strings")
        for item in node.value:
            if not isinstance(item, yaml.ScalarNode) or item.tag != _STRING or not item.value:
                fail(
                    self.path,
                    item.start_mark.line + 1,
                    f"{name!r} of {self.what} must contain only strings: put this one in quotes",
                )
            if any(ord(letter) < 32 for letter in item.value):
                fail(self.path, item.start_mark.line + 1, f"{name!r} of {self.what} contains a control character")
        return tuple(str(item.value) for item in node.value)

    def number(self, name: str, default: float, *, low: float, high: float) -> float:
        """A number within bounds."""
        node = self.node(name)
        if node is None:
            return default
        value = None
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS:
            with suppress(yaml.YAMLError, ValueError):  # a tag that does not fit the text: !!int "[1"
                value = yaml.safe_load(node.value)
        if not isinstance(value, int | float) or not low <= value <= high:
            self.refuse(name, f"{name!r} of {self.what} must be a number from {low:g} to {high:g}")
        return float(value)

    def whole(self, name: str, default: int, *, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self.number(name, default, low=low, high=high)
        if value != int(value):
            self.refuse(name, f"{name!r} of {self.what} must be a whole number, not {value:g}")
        return int(value)

    def boolean(self, name: str) -> bool:
        """True or false; false if missing."""
        text = self.text(name)
        if text is None:
            return False
        if text.lower() not in _BOOLEANS:
            self.refuse(name, f"{name!r} of {self.what} must be true or false, not {text!r}")
        return _BOOLEANS[text.lower()]

    def choice(self, name: str, allowed: Collection[str], default: str | None = None) -> str:
        """One of a few words."""
        value = self.text(name) or default
        if value not in allowed:
            self.refuse(name, f"{name!r} of {self.what} is {value!r}: use one of {', '.join(allowed)}")
        return str(value)

    def finish(self) -> None:
        """Refuse the keys that were not read."""
        for name, (line, _) in self._keys.items():
            if name not in self._known:
                known = ", ".join(sorted(self._known))
                fail(self.path, line, f"{self.what or 'the file'} has an unknown key {name!r}: use one of {known}")


def read_text(path: Path, trusted_uids: Collection[int] | None = None) -> str:
    """The text of a configuration file; ConfigurationError if another user than the trusted ones can write it."""
    try:
        data = read_trusted(path, trusted_uids)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigurationError(f"{path} has {len(data)} bytes (limit {_MAX_BYTES}): is it the right file?")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        fail(path, line, "the file is not UTF-8 text")


def parse_document(path: Path, text: str) -> Section:
    """The top mapping of a file."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigurationError(f"{path}:{line}: the file is not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"{path}:1: the file is not YAML: {error}") from error
    if node is None:
        fail(path, 1, "the file is empty")
    return Section(path, node, "")


def fail(path: Path, line: int, message: str) -> NoReturn:
    """Raise ConfigurationError at a line of a file."""
    raise ConfigurationError(f"{path}:{line}: {message}")
