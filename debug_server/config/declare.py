"""Declares settings: a dataclass field with a description, a kind and a default.

A settings class is a frozen dataclass whose fields come from ``setting`` or, for a table of settings, from ``section``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from debug_server.config.kinds import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A default that is computed from settings declared before it in the same section."""

    text: str  # shown in the documentation instead of a value
    of: Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One declared setting."""

    key: str  # dotted, as in a file: paths.logs
    description: str
    kind: Kind
    default: Any  # a value or a Derived
    variable: str  # the environment variable; empty: none

    def default_for(self, before: Mapping[str, Any]) -> Any:
        """The default, given the values before it."""
        return self.default.of(before) if isinstance(self.default, Derived) else self.default


def setting(description: str, kind: Kind, *, default: Any, variable: str | None = None) -> Any:
    """A dataclass field for one setting. ``variable`` None: DEBUG_SERVER_ plus the key; empty: no variable."""
    metadata = {"setting": (description, kind, default, variable)}
    # A derived default depends on other settings: without ``load`` the value must be passed.
    plain = MISSING if isinstance(default, Derived) else default
    return dataclasses.field(default=plain, metadata=metadata)


def section(cls: type) -> Any:
    """A dataclass field for a table of settings."""
    return dataclasses.field(metadata={"section": cls})


def section_of(field: dataclasses.Field[Any]) -> type | None:
    """The class behind a ``section`` field."""
    found: type | None = field.metadata.get("section")
    return found


def settings_of(cls: type, prefix: str = "") -> dict[str, Setting]:
    """Every setting of a class and its sections, by key, in the order of declaration."""
    found: dict[str, Setting] = {}
    for field in dataclasses.fields(cls):
        if inner := section_of(field):
            found |= settings_of(inner, f"{prefix}{field.name}.")
        else:
            key = prefix + field.name
            description, kind, default, variable = field.metadata["setting"]
            name = "DEBUG_SERVER_" + key.replace(".", "_").upper() if variable is None else variable
            found[key] = Setting(key=key, description=description, kind=kind, default=default, variable=name)
    return found
