"""Child environments: sealed on disk, wiped at the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from debug_server.errors import ConflictError, MetadataError, StoreUnavailableError
from debug_server.model import ExitReason, ExitRecord, Session
from debug_server.store import MetadataStore, open_store
from debug_server.store.sealing import Sealer

SECRET = "planted-secret-0123456789"


def test_the_environment_lives_as_long_as_the_command(store: MetadataStore, session: Session) -> None:
    """It can be read until the end, by its names ever after; without one it is empty."""
    env = {"API_KEY": SECRET, "ODD": "\udcff ü\n="}
    command = store.commands.add(session_id=session.id, argv=["x"], env=env, claim_owner="e")
    bare = store.commands.add(session_id=session.id, argv=["x"])
    assert store.commands.inputs(command.id)[0] == env
    assert store.commands.inputs(bare.id)[0] == {}
    store.commands.finish(command.id, attempt=1, owner="e", record=ExitRecord(reason=ExitReason.LOST))
    with pytest.raises(ConflictError, match="has failed"):
        store.commands.inputs(command.id)
    assert store.commands.get(command.id).env_names == ("API_KEY", "ODD")


def test_cancelling_wipes_too(store: MetadataStore, session: Session) -> None:
    """A command that is cancelled while it waits keeps no environment either."""
    command = store.commands.add(session_id=session.id, argv=["x"], env={"A": SECRET})
    store.commands.request_cancel(command.id)
    with pytest.raises(ConflictError, match="has cancelled"):
        store.commands.inputs(command.id)


def test_no_file_shows_the_secret(tmp_path: Path) -> None:
    """Neither database, WAL nor key file holds the value, while its name can be found; the key is private."""
    place = tmp_path / "data"
    with open_store(str(place / "m.db")) as store:
        session = store.sessions.create()
        store.commands.add(session_id=session.id, argv=["x"], env={"PLANTED_NAME": SECRET})
        content = b"".join(path.read_bytes() for path in place.iterdir())
        assert b"PLANTED_NAME" in content and SECRET.encode() not in content
    assert sorted(os.listdir(place)) == ["m.db", "seal.key"]
    assert (place / "seal.key").stat().st_mode & 0o777 == 0o600


def test_a_seal_fits_one_place_and_one_key(tmp_path: Path) -> None:
    """A sealed value moved to another row, changed, or read with another key is refused with advice."""
    sealer = Sealer(tmp_path / "one.key")
    sealed = sealer.seal({"A": "b"}, "row 1")
    assert Sealer(tmp_path / "one.key").unseal(sealed, "row 1") == {"A": "b"}
    for other, value, place in (
        (sealer, sealed, "row 2"),
        (sealer, sealed[:-1] + bytes([sealed[-1] ^ 1]), "row 1"),
        (sealer, b"short", "row 1"),
        (Sealer(tmp_path / "two.key"), sealed, "row 1"),
    ):
        with pytest.raises(MetadataError, match="restore the key"):
            other.unseal(value, place)


def test_a_bad_key_file_is_named(tmp_path: Path) -> None:
    """A damaged key, and a place where none can be made, are errors with the path."""
    (tmp_path / "half.key").write_bytes(b"half")
    with pytest.raises(StoreUnavailableError, match=r"half\.key is damaged"):
        Sealer(tmp_path / "half.key").seal({"A": "b"}, "row 1")
    with pytest.raises(StoreUnavailableError, match="cannot be read or created"):
        Sealer(tmp_path / "half.key" / "below.key").seal({"A": "b"}, "row 1")
