"""What a request for an environment would get, without building it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPreview:
    """The environment that a command would run in."""

    chosen: str | None = None  # what was detected, and why; None: the caller named the manifests
    manifests: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    python: str | None = None  # None: the programs of the machine
    python_reason: str | None = None
    builder: str | None = None
    fingerprint: str | None = None
    built: bool = False
    notes: tuple[str, ...] = ()  # what else was recognised
