"""The seal: a small file that says that an environment is complete; environments are only found through it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from debug_server.runner.environments.inventory import ADDED, Inventory, describe, differences
from debug_server.runner.environments.layout import MARKER, Layout, key_of, key_of_directory
from debug_server.runner.environments.leases import this_boot
from debug_server.runner.environments.protection import protect


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What is known about a complete environment."""

    fingerprint: str
    directory: str  # its name under the environments' folder
    python: str  # the interpreter to run, an absolute path
    interpreter: str  # identity of the interpreter it was built with
    builder: str
    packages: tuple[str, ...]
    inventory: str  # SHA-256 of the list of files
    total_bytes: int
    started_ns: int  # when its build began
    seconds: float  # how long the build took
    boot: str  # boot id of the last check: files are not synced, so after a crash some may be missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Why a seal was withdrawn."""

    problem: str
    packages: tuple[str, ...]  # to remove from the builder's cache, whose files may be hard links to damaged ones


def write_marker(directory: Path) -> None:
    """Write the file that names the environment into it."""
    (directory / MARKER).write_text(f"{directory.name}\n", "utf-8")


def write_seal(layout: Layout, seal: Seal, inventory: Inventory) -> Seal:
    """Protect the files and publish the seal: from then on the environment is used, and only root can change it."""
    files = {path: entry.mode for path, entry in inventory.entries.items() if entry.target is None}
    protect(layout.environments / seal.directory, files)
    data = inventory.encode()
    digest = hashlib.sha256(data).hexdigest()
    sealed = replace(
        seal,
        inventory=digest,
        total_bytes=inventory.total_bytes,
        packages=tuple(inventory.packages()),
        boot=this_boot(),
    )
    _replace(inventory_path(layout, sealed), data)
    publish(layout, sealed)
    for old in layout.seals.glob(f"{seal.directory}.*.json"):
        if old != inventory_path(layout, sealed):
            old.unlink(missing_ok=True)
    return sealed


def publish(layout: Layout, seal: Seal) -> None:
    """Put the seal in place by an atomic rename."""
    _replace(layout.seal(key_of(seal.fingerprint)), json.dumps(asdict(seal)).encode())


def read_seal(layout: Layout, fingerprint: str) -> Seal | None:
    """The seal of ``fingerprint``, if there is one that can be understood."""
    key = key_of(fingerprint)
    seal = parse_seal(layout.seal(key))
    if seal is None or seal.fingerprint != fingerprint or key_of_directory(seal.directory) != key:
        return None
    return seal


def parse_seal(path: Path) -> Seal | None:
    """The seal in the file ``path``; None if it is missing or invalid."""
    try:
        data = json.loads(path.read_bytes())
        seal = Seal(**{item.name: data[item.name] for item in fields(Seal)})
        return replace(seal, packages=tuple(seal.packages))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def is_usable(layout: Layout, seal: Seal) -> bool:
    """Check an environment before reuse: it exists, is the sealed one, and its interpreter exists.

    After a reboot the names, modes and sizes of all files are checked too, and the seal is updated.
    """
    directory = layout.environments / seal.directory
    try:
        if (directory / MARKER).read_text("utf-8").strip() != seal.directory:
            return False
        Path(seal.python).stat()
    except OSError:
        return False
    if seal.boot == this_boot():
        return True
    if find_damage(layout, seal, contents=False):
        return False
    publish(layout, replace(seal, boot=this_boot()))
    return True


def find_damage(layout: Layout, seal: Seal, *, contents: bool) -> dict[str, str]:
    """Check the files of an environment; returns path -> problem. Bytecode that commands added is removed."""
    directory = layout.environments / seal.directory
    inventory = read_inventory(layout, seal)
    if inventory is None:
        return {MARKER: "has no list of files that fits the seal"}
    if not directory.is_dir():
        return {MARKER: "is missing"}
    wrong = differences(directory, inventory, contents=contents)
    return {path: what for path, what in wrong.items() if not _remove_if_bytecode(directory, path, what)}


def _remove_if_bytecode(directory: Path, path: str, what: str) -> bool:
    """Remove bytecode that a command added; it is not verified, and can be compiled again."""
    if what != ADDED or ".pyc" not in path or "__pycache__/" not in path:  # .pyc.123: a draft of a killed compiler
        return False
    (directory / path).unlink(missing_ok=True)
    return True


def read_inventory(layout: Layout, seal: Seal) -> Inventory | None:
    """The list of files that belongs to ``seal``."""
    try:
        data = inventory_path(layout, seal).read_bytes()
    except OSError:
        return None
    return Inventory.decode(data) if hashlib.sha256(data).hexdigest() == seal.inventory else None


def withdraw(layout: Layout, seal: Seal, wrong: dict[str, str], packages: list[str]) -> Damage:
    """Remove the seal of a damaged environment, and note what is damaged for the next build."""
    damage = Damage(problem=describe(wrong), packages=tuple(packages))
    key = key_of(seal.fingerprint)
    _replace(layout.damage(key), json.dumps(asdict(damage)).encode())
    layout.seal(key).unlink(missing_ok=True)
    return damage


def read_damage(layout: Layout, key: str) -> Damage | None:
    """The note about a withdrawn seal."""
    try:
        data = json.loads(layout.damage(key).read_bytes())
        return Damage(problem=str(data["problem"]), packages=tuple(data["packages"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def remove_records(layout: Layout, directory: str) -> None:
    """Remove the list of files of an environment that is gone."""
    for path in (*layout.seals.glob(f"{directory}.*.json"), layout.compiled(directory)):
        path.unlink(missing_ok=True)


def inventory_path(layout: Layout, seal: Seal) -> Path:
    """Where the list of files lies."""
    return layout.seals / f"{seal.directory}.{seal.inventory[:16]}.json"


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
