"""Access tokens: shown once, checked by hash."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError, NotFoundError
from debug_server.store import MetadataStore, open_store

from .conftest import Clock


def test_a_token_opens_until_it_expires_or_is_revoked(store: MetadataStore, clock: Clock) -> None:
    """The secret names its token with scopes and quotas; after expiry or revocation it names nobody."""
    token, secret = store.create_token("ci", ["admin", "sessions:read"], quotas={"commands": 5})
    short, short_secret = store.create_token("short", [], expires_at=clock() + timedelta(seconds=5))
    found = store.authenticate(secret)
    assert found is not None and (found.id, found.scopes, found.quotas) == (token.id, token.scopes, {"commands": 5})
    assert store.authenticate(secret[:-1]) is None and store.authenticate("") is None
    assert store.authenticate("\udcff\0") is None
    assert store.authenticate(short_secret) is not None
    clock.move(5)
    assert store.authenticate(short_secret) is None
    revoked = store.revoke_token(token.id)
    assert revoked.revoked_at == clock()
    clock.move(1)
    assert store.revoke_token(token.id) == revoked
    assert store.authenticate(secret) is None
    assert [item.id for item in store.list_tokens()] == [token.id, short.id]
    with pytest.raises(NotFoundError):
        store.revoke_token(99)


def test_use_is_noted(store: MetadataStore, clock: Clock) -> None:
    """last_used_at follows use, at most once a minute."""
    token, secret = store.create_token("ci", [])
    first = clock()
    store.authenticate(secret)
    clock.move(30)
    store.authenticate(secret)
    assert store.get_token(token.id).last_used_at == first
    later = clock.move(30)
    store.authenticate(secret)
    assert store.get_token(token.id).last_used_at == later


def test_bad_tokens_are_refused(store: MetadataStore) -> None:
    """A token needs a name and a list of scopes; a bare string is not one."""
    for name, scopes in (("", ["admin"]), ("ci", "admin"), ("ci", [""])):
        with pytest.raises(InvalidInputError, match="scope"):
            store.create_token(name, scopes)


def test_no_secret_reaches_the_disk(tmp_path: Path) -> None:
    """The database files hold the token's hash and never its secret."""
    with open_store(str(tmp_path / "m.db")) as store:
        _, secret = store.create_token("ci", [])
        store.authenticate(secret)
        content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"ci" in content and secret.encode() not in content
