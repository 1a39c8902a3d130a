"""The last synchronised dependency fingerprint of each key, in one small JSON file per key."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from debug_server.errors import InvalidInputError

_CHUNK = 1 << 20
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class DependencyState:
    """What was last synchronised."""

    fingerprint: str
    updated_at: datetime
    metadata: dict[str, Any] = field(default_factory=dict)


def safe_key(key: str) -> str:
    """A file name for ``key``: itself when it is plain, else its plain characters and a short digest."""
    if _PLAIN_KEY.fullmatch(key):
        return key
    if not key:
        raise InvalidInputError("an empty key cannot name a dependency state: give it a name such as 'session-1'")
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{_UNSAFE.sub('-', key).strip('.-')[:80] or 'key'}-{digest}"


def compute_dependency_hash(
    manifests: Iterable[str | os.PathLike[str]],
    *,
    extra_inputs: Mapping[str, str] | Sequence[str] | None = None,
    chunk_size: int = _CHUNK,
) -> str:
    """SHA-256 over the names and contents of ``manifests`` and over ``extra_inputs``.

    Folder, order and modification time of the manifests do not count, so equal files in two workspaces have one
    hash.
    """
    total = hashlib.sha256()
    for name, digest in sorted(_named_digest(Path(path), chunk_size) for path in manifests):
        _feed(total, "manifest", name, digest)
    for name, value in _extra_pairs(extra_inputs):
        _feed(total, "extra", name, value)
    return total.hexdigest()


def _named_digest(path: Path, chunk_size: int) -> tuple[str, str]:
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(chunk_size):
                digest.update(chunk)
    except OSError as error:
        raise InvalidInputError(f"manifest {str(path)!r} cannot be read: {error.strerror}") from error
    return path.name, digest.hexdigest()


def _extra_pairs(extra: Mapping[str, str] | Sequence[str] | None) -> list[tuple[str, str]]:
    if extra is None:
        return []
    if isinstance(extra, Mapping):
        return sorted(extra.items())
    return [("", value) for value in extra]


def _feed(total: hashlib._Hash, *parts: str) -> None:
    # Each part carries its length: ("ab", "c") and ("a", "bc") must differ.
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        total.update(len(data).to_bytes(8, "big") + data)


class DependencyStateStore:
    """One JSON file for each key under ``root``; a file that cannot be parsed counts as missing."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def path_for(self, key: str) -> Path:
        """The file for ``key``."""
        return self.root / f"{safe_key(key)}.json"

    def read(self, key: str) -> DependencyState | None:
        """The last state of ``key``, if there is a readable one."""
        try:
            data = json.loads(self.path_for(key).read_bytes())
            metadata = data.get("metadata") or {}
            updated_at = datetime.fromisoformat(data["updated_at"])
            if not isinstance(data["fingerprint"], str) or not isinstance(metadata, dict):
                return None
            return DependencyState(data["fingerprint"], updated_at, metadata)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(
        self,
        key: str,
        fingerprint: str,
        metadata: Mapping[str, Any] | None = None,
        *,
        timestamp: datetime | None = None,
    ) -> DependencyState:
        """Store ``fingerprint`` for ``key``, atomically for readers."""
        state = DependencyState(fingerprint, timestamp or datetime.now(UTC), dict(metadata or {}))
        data = {
            "fingerprint": fingerprint,
            "updated_at": state.updated_at.isoformat(),
            "metadata": state.metadata,
        }
        path = self.path_for(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            draft.write_text(json.dumps(data, sort_keys=True), "utf-8")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return state

    def needs_sync(self, key: str, fingerprint: str) -> bool:
        """Whether ``fingerprint`` differs from the last one written for ``key``."""
        state = self.read(key)
        return state is None or state.fingerprint != fingerprint
