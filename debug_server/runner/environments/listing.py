"""Lists the complete environments, for ``debug-server env list`` and for maintenance."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass

from debug_server.runner.environments import leases
from debug_server.runner.environments.layout import Layout, key_of
from debug_server.runner.environments.seal import Seal, inventory_path, parse_seal


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledEnvironment:
    """One complete environment."""

    key: str
    fingerprint: str
    builder: str
    interpreter: str
    packages: int
    total_bytes: int
    names: tuple[str, ...]  # that lead to it
    in_use: bool
    idle_seconds: float
    verified_seconds_ago: float | None  # since the last check of every file; None: its list of files is missing


def list_environments(layout: Layout) -> list[InstalledEnvironment]:
    """Every sealed environment, the longest unused first."""
    names: dict[str, list[str]] = {}
    for link in layout.root.iterdir():
        if link.is_symlink():
            names.setdefault(link.readlink().name, []).append(link.name)
    seals = [seal for path in layout.seals.glob("*.json") if (seal := parse_seal(path)) is not None]
    found = [_describe(layout, seal, names.get(seal.directory, [])) for seal in seals]
    return sorted(found, key=lambda item: -item.idle_seconds)


def record_verified(layout: Layout, seal: Seal) -> None:
    """Set the mtime of the list of files to now: it is the time of the last check."""
    with suppress(FileNotFoundError):
        os.utime(inventory_path(layout, seal))


def _describe(layout: Layout, seal: Seal, names: list[str]) -> InstalledEnvironment:
    lease, listed = layout.leases / seal.directory, inventory_path(layout, seal)
    with leases.exclusive(lease) as alone:
        in_use = not alone
    return InstalledEnvironment(
        key=key_of(seal.fingerprint),
        fingerprint=seal.fingerprint,
        builder=seal.builder,
        interpreter=seal.interpreter,
        packages=len(seal.packages),
        total_bytes=seal.total_bytes,
        names=tuple(sorted(names)),
        in_use=in_use,
        idle_seconds=leases.idle_seconds(lease),
        verified_seconds_ago=time.time() - listed.stat().st_mtime if listed.exists() else None,
    )
