"""Named groups of tools: a client chooses which ones are listed, because a model reads the whole list."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from urllib.parse import parse_qs

from debug_server.errors import InvalidInputError
from debug_server.nearest import nearest

PARAMETER = "toolsets"  # of the address of the HTTP endpoint
ALL = "all"


class Toolset(StrEnum):
    """One group of tools."""

    CORE = "core"  # what a debug loop needs
    SESSIONS = "sessions"
    COMMANDS = "commands"
    ARTIFACTS = "artifacts"
    EVENTS = "events"
    ADMIN = "admin"  # needs the scope admin


Toolsets = frozenset[Toolset]
DEFAULT: Toolsets = frozenset({Toolset.CORE})


def parse_toolsets(text: str) -> Toolsets:
    """The toolsets that a text with commas names; ``all`` is every one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [ALL, *map(str, Toolset)]
    if unknown := [name for name in names if name not in known]:
        meant = nearest(unknown[0], known)
        hint = f"did you mean {meant!r}?" if meant else f"use some of {', '.join(Toolset)}, or {ALL}"
        raise InvalidInputError(f"unknown toolset {unknown[0][:64]!r}: {hint}")
    if not names:
        return DEFAULT
    return frozenset(Toolset) if ALL in names else frozenset(map(Toolset, names))


def toolsets_of_query(query: bytes) -> Toolsets:
    """The toolsets that the query of an address names."""
    return parse_toolsets(",".join(parse_qs(query.decode("latin-1")).get(PARAMETER, ())))


def listed(toolsets: Iterable[Toolset]) -> str:
    """Their names with commas, in the order of the enumeration."""
    chosen = set(toolsets)
    return ",".join(item for item in Toolset if item in chosen)
