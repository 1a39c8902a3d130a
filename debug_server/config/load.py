"""Loads settings from files, variables and flags, each overriding the one before, and records their sources."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from debug_server.config.declare import Setting, section_of, settings_of
from debug_server.disk import read_trusted
from debug_server.errors import ConfigurationError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[T]):
    """A settings value, and the source of each setting."""

    value: T
    sources: Mapping[str, str]

    def source(self, key: str) -> str:
        """``default``, a file's path, ``variable NAME`` or ``flag`` for a dotted key."""
        if key not in self.sources:
            raise ConfigurationError(f"there is no setting {key!r}{_suggestion(key, self.sources)}")
        return self.sources[key]


def load(
    cls: type[T],
    *,
    files: Sequence[Path] = (),
    tables: Sequence[tuple[str, Mapping[Any, Any]]] = (),
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    base: Path | None = None,
    trusted_uids: Collection[int] | None = None,
) -> Loaded[T]:
    """Build ``cls`` from its defaults, then ``files`` in order, then ``environ``, then ``flags`` (dotted key -> value).

    ``tables`` are (source, table) pairs of files already read. ``defaults`` replace declared defaults. An empty
    variable and a flag of None count as not set.
    Relative paths in a file are resolved against ``base_of`` the file; in ``tables`` and ``defaults`` against ``base``,
    if given; in variables and flags against the current directory.
    ``trusted_uids``: users whose files are trusted, in addition to this user and root.
    """
    known = settings_of(cls)
    given = {key: (value, "default") for key, value in (defaults or {}).items()}
    for path in files:
        given |= _from_table(read_table(path, trusted_uids), str(path), known, base_of(path))
    for source, table in tables:
        given |= _from_table(table, source, known, base)
    given |= _from_environ(known, environ or {})
    given |= _from_flags(known, flags or {})
    sources = {key: given[key][1] if key in given else "default" for key in known}
    value = _build(cls, known, {key: value for key, (value, _) in given.items()}, base)
    return Loaded(value=value, sources=sources)


def base_of(path: Path) -> Path:
    """Where relative paths of a settings file start: beside its ``config/`` folder, else in its own folder."""
    folder = path.absolute().parent
    return folder.parent if folder.name == "config" else folder


def _resolve_path(value: Any, base: Path | None) -> Any:
    return base / value if base is not None and isinstance(value, Path) else value


def _build(
    cls: type[T], known: Mapping[str, Setting], given: Mapping[str, Any], base: Path | None, prefix: str = ""
) -> T:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # settings classes are dataclasses
        key = prefix + field.name
        if inner := section_of(field):
            values[field.name] = _build(inner, known, given, base, key + ".")
        else:
            values[field.name] = given[key] if key in given else _resolve_path(known[key].default_for(values), base)
    return cls(**values)


def _from_table(
    table: Mapping[Any, Any], source: str, known: Mapping[str, Setting], base: Path | None
) -> dict[str, tuple[Any, str]]:
    found = {}
    for key, raw in _flatten(table, "", source, known):
        found[key] = (_resolve_path(_check(known[key], raw, source), base), source)
    return found


def _from_environ(known: Mapping[str, Setting], environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found = {}
    for key, item in known.items():
        if item.variable and (raw := environ.get(item.variable)):
            source = f"variable {item.variable}"
            found[key] = (_absolute(_check(item, raw, source, text=True)), source)
    return found


def _from_flags(known: Mapping[str, Setting], flags: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    found = {}
    for key, raw in flags.items():
        if key not in known:
            raise ConfigurationError(f"flag: unknown setting {key!r}{_suggestion(key, known)}")
        if raw is not None:
            found[key] = (_absolute(_check(known[key], raw, "flag", text=isinstance(raw, str))), "flag")
    return found


def _absolute(value: Any) -> Any:
    return value.absolute() if isinstance(value, Path) else value


def _check(item: Setting, raw: Any, source: str, *, text: bool = False) -> Any:
    try:
        return item.kind.check(item.kind.read(raw) if text else raw)
    except ValueError as error:
        raise ConfigurationError(f"{source}: {item.key} = {raw!r} must be {item.kind.expected}") from error


def _flatten(
    table: Mapping[Any, Any], prefix: str, source: str, known: Mapping[str, Setting]
) -> Iterator[tuple[str, Any]]:
    for name, raw in table.items():
        key = f"{prefix}{name}"
        if key in known:
            yield key, raw
        elif not any(other.startswith(key + ".") for other in known):
            raise ConfigurationError(f"{source}: unknown key {key!r}{_suggestion(key, known)}")
        elif isinstance(raw, Mapping):
            yield from _flatten(raw, key + ".", source, known)
        else:
            raise ConfigurationError(f"{source}: {key} = {raw!r} must be a table of settings")


def _suggestion(key: str, known: Iterable[str]) -> str:
    names = {*known, *(other.rpartition(".")[0] for other in known if "." in other)}
    if close := difflib.get_close_matches(key, sorted(names), n=1):
        return f": did you mean {close[0]!r}?"
    return f": use one of {', '.join(known)}"


def read_table(path: Path, trusted_uids: Collection[int] | None = None) -> Mapping[Any, Any]:
    """The tables of a TOML or YAML file; ConfigurationError when it is not trusted or cannot be read as one."""
    try:
        text = read_trusted(path, trusted_uids).decode()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8 text: {error.reason} at byte {error.start}") from error
    table = _parse_yaml(text, path) if path.suffix in (".yml", ".yaml") else _parse_toml(text, path)
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{path}: must be a table of settings, not a {type(table).__name__}")
    return table


def _parse_toml(text: str, path: Path) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: is not valid TOML: {error}") from error


def _parse_yaml(text: str, path: Path) -> Any:
    import yaml  # imported late: costs 20 ms, and few commands read YAML

    try:
        table = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    return {} if table is None else table
