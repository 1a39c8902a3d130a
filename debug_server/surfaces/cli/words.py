"""Parses values of a command line: pairs, durations, patches and comma-separated lists."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from debug_server.errors import InvalidInputError
from debug_server.model import parse_duration, parse_size
from debug_server.nearest import nearest

Grace = Annotated[str, typer.Option(metavar="TIME", help="the longest time from SIGTERM to the exit")]
_MAX_PATCH_BYTES = 16 << 20  # what the server takes


def pairs(items: Sequence[str] | None, *, flag: str) -> dict[str, str]:
    """``key=value`` each."""
    found = {}
    for item in items or ():
        name, sign, value = item.partition("=")
        if not sign or not name:
            raise InvalidInputError(f"{flag} {item!r} must be KEY=VALUE")
        found[name] = value
    return found


def json_pairs(items: Sequence[str] | None, *, flag: str) -> dict[str, Any]:
    """``key=value`` pairs; a value that is valid JSON is decoded."""
    return {name: _value(text) for name, text in pairs(items, flag=flag).items()}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def duration(text: str | None, *, flag: str) -> float | None:
    """Seconds from ``90``, ``15m``, ``2h`` or ``7d``."""
    if text is None:
        return None
    return seconds(text, flag=flag)


def seconds(text: str, *, flag: str) -> float:
    """The seconds of a duration."""
    try:
        return parse_duration(text)
    except InvalidInputError as error:
        raise InvalidInputError(f"{flag} {error}") from error


def size(text: str | None, *, flag: str) -> int | None:
    """Bytes from ``4096``, ``256M`` or ``1.5G``."""
    if text is None:
        return None
    try:
        return parse_size(text)
    except InvalidInputError as error:
        raise InvalidInputError(f"{flag} {text!r} must be a number of bytes such as 4096, 64M or 1.5G") from error


def one_of(items: Sequence[str], *, flag: str, known: Sequence[str]) -> list[str]:
    """The items, each of which must be known."""
    for item in items:
        if item not in known:
            meant = nearest(item, known)
            raise InvalidInputError(
                f"{flag} {item!r} is unknown: " + (f"did you mean {meant!r}?" if meant else f"use {', '.join(known)}")
            )
    return list(items)


def refuse_without_repo(given: Mapping[str, object]) -> None:
    """InvalidInputError for the first of these options that is given."""
    for name, value in given.items():
        if value:
            raise InvalidInputError(f"{name} needs --repo: without --repo there is no workspace")


def patch_bytes(path: Path | None) -> bytes | None:
    """A patch file, or a pipe; ``-`` is stdin."""
    if path is None:
        return None
    try:
        with Path("/dev/stdin" if str(path) == "-" else path).open("rb") as file:
            data = file.read(_MAX_PATCH_BYTES + 1)
    except OSError as error:
        raise InvalidInputError(f"patch {str(path)!r} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_PATCH_BYTES:
        raise InvalidInputError(
            f"patch {str(path)!r} has more than {_MAX_PATCH_BYTES >> 20} MiB: commit the large files"
        )
    return data


def listed(items: Sequence[str] | None) -> list[str]:
    """The items of a repeatable option, each of which may be a comma-separated list."""
    return [name for item in items or () for name in item.split(",") if name]
