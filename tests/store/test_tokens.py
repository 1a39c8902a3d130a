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
    token, secret = store.tokens.create("ci", ["admin", "sessions:read"], quotas={"commands": 5})
    short, short_secret = store.tokens.create("short", [], expires_at=clock() + timedelta(seconds=5))
    found = store.tokens.authenticate(secret)
    assert found is not None and (found.id, found.scopes, found.quotas) == (token.id, token.scopes, {"commands": 5})
    assert store.tokens.authenticate(secret[:-1]) is None and store.tokens.authenticate("") is None
    assert store.tokens.authenticate("\udcff\0") is None
    assert store.tokens.authenticate(short_secret) is not None
    clock.move(5)
    assert store.tokens.authenticate(short_secret) is None
    revoked = store.tokens.revoke(token.id)
    assert revoked.revoked_at == clock()
    clock.move(1)
    assert store.tokens.revoke(token.id) == revoked
    assert store.tokens.authenticate(secret) is None
    assert [item.id for item in store.tokens.page()] == [token.id, short.id]
    with pytest.raises(NotFoundError):
        store.tokens.revoke(99)


def test_use_is_noted(store: MetadataStore, clock: Clock) -> None:
    """last_used_at follows use, at most once a minute."""
    token, secret = store.tokens.create("ci", [])
    first = clock()
    store.tokens.authenticate(secret)
    clock.move(30)
    store.tokens.authenticate(secret)
    assert store.tokens.get(token.id).last_used_at == first
    later = clock.move(30)
    store.tokens.authenticate(secret)
    assert store.tokens.get(token.id).last_used_at == later


def test_bad_tokens_are_refused(store: MetadataStore) -> None:
    """A token needs a name and a list of scopes; a bare string is not one."""
    for name, scopes in (("", ["admin"]), ("ci", "admin"), ("ci", [""])):
        with pytest.raises(InvalidInputError, match="scope"):
            store.tokens.create(name, scopes)


def test_no_secret_reaches_the_disk(tmp_path: Path) -> None:
    """The database files hold the token's hash and never its secret."""
    with open_store(str(tmp_path / "m.db")) as store:
        _, secret = store.tokens.create("ci", [])
        store.tokens.authenticate(secret)
        content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"ci" in content and secret.encode() not in content
