"""Encrypts secrets and environments, so that a database file or its backup does not reveal them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from debug_server.errors import MetadataError, StoreUnavailableError
from debug_server.store.encoding import decode, encode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12


class Sealer:
    """AES-GCM with a key file that is created at first use; unsealing needs the same context."""

    def __init__(self, key_path: Path) -> None:
        self._key_path = key_path
        self._cipher: AESGCM | None = None

    def seal(self, values: Mapping[str, str], context: str) -> bytes:
        """The values, readable only with the key and the same ``context``."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aes().encrypt(nonce, encode(dict(values)).encode(), context.encode())

    def unseal(self, sealed: bytes, context: str) -> dict[str, str]:
        """The inverse of ``seal``; MetadataError for another key or context."""
        from cryptography.exceptions import InvalidTag

        try:
            text = self._aes().decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context.encode())
        except (InvalidTag, ValueError) as error:
            raise MetadataError(
                f"the environment of {context} cannot be unsealed with {self._key_path}: restore the key that sealed it"
            ) from error
        values: dict[str, str] = decode(text.decode())
        return values

    def _aes(self) -> AESGCM:
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(_load_key(self._key_path))
        return self._cipher


def _load_key(path: Path) -> bytes:
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_bytes()
    except OSError as error:
        raise StoreUnavailableError(
            f"the sealing key {path} cannot be read or created ({error.strerror}): make it accessible to this user"
        ) from error
    if len(key) != KEY_BYTES:
        raise StoreUnavailableError(f"the sealing key {path} is damaged: restore it, or remove it to create a new one")
    return key


def _make_key(path: Path) -> None:
    """Write a temporary file and link it: of two processes one wins, and none reads an incomplete key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(KEY_BYTES))
        os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.close(descriptor)
        draft.unlink()
