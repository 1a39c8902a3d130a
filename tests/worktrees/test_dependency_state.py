"""Dependency hashes and the state store behind them."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError
from debug_server.worktrees.dependency_state import (
    DependencyState,
    DependencyStateStore,
    compute_dependency_hash,
    safe_key,
)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_hash_depends_on_content_and_name_alone(tmp_path: Path) -> None:
    """Folder, order, time stamps and the size of reads do not count; a byte and a name do."""
    one = [_write(tmp_path / "a/requirements.txt", "attrs\n"), _write(tmp_path / "a/uv.lock", "lock")]
    two = [_write(tmp_path / "b/uv.lock", "lock"), _write(tmp_path / "b/requirements.txt", "attrs\n")]
    os.utime(two[0], (1, 1))
    assert compute_dependency_hash(one) == compute_dependency_hash(two, chunk_size=1)
    two[0].write_text("lock!")
    assert compute_dependency_hash(one) != compute_dependency_hash(two)
    other = _write(tmp_path / "c/constraints.txt", "attrs\n")
    assert compute_dependency_hash([one[0]]) != compute_dependency_hash([other])


def test_extra_inputs_count_and_cannot_be_confused(tmp_path: Path) -> None:
    """Extra inputs change the hash, whatever their order as a mapping, and their borders are kept."""
    manifest = [_write(tmp_path / "requirements.txt", "")]
    plain = compute_dependency_hash(manifest)
    assert compute_dependency_hash(manifest, extra_inputs={}) == plain
    assert compute_dependency_hash(manifest, extra_inputs=["ab", "c"]) != compute_dependency_hash(
        manifest, extra_inputs=["a", "bc"]
    )
    forward = compute_dependency_hash(manifest, extra_inputs={"python": "3.11", "os": "linux"})
    assert forward == compute_dependency_hash(manifest, extra_inputs={"os": "linux", "python": "3.11"}) != plain


def test_missing_manifest_is_named(tmp_path: Path) -> None:
    """A manifest that is not there is an error with its path, not a hash of nothing."""
    with pytest.raises(InvalidInputError, match=r"no-such\.txt"):
        compute_dependency_hash([tmp_path / "no-such.txt"])


def test_store_returns_what_was_written(tmp_path: Path) -> None:
    """read gives back fingerprint, time and metadata; needs_sync compares with them."""
    store = DependencyStateStore(tmp_path / "state")
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert store.read("session-1") is None
    assert store.needs_sync("session-1", "f1")
    store.write("session-1", "f1", {"python": "3.11"}, timestamp=moment)
    assert store.read("session-1") == DependencyState("f1", moment, {"python": "3.11"})
    assert not store.needs_sync("session-1", "f1")
    assert store.needs_sync("session-1", "f2")
    assert (tmp_path / "state" / "session-1.json").is_file()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"fingerprint": 1, "updated_at": "2024-01-01"}', b"\xff\xfe"])
def test_corrupt_state_counts_as_missing(tmp_path: Path, damage: bytes) -> None:
    """A torn or foreign file is no state, and can be written over."""
    store = DependencyStateStore(tmp_path)
    store.path_for("k").write_bytes(damage)
    assert store.read("k") is None
    assert store.needs_sync("k", "f")
    store.write("k", "f")
    assert not store.needs_sync("k", "f")


@pytest.mark.parametrize("key", ["../../etc/passwd", "a/b", ".hidden", "with space", "x" * 300, "ünï", "."])
def test_any_key_stays_in_its_folder(tmp_path: Path, key: str) -> None:
    """Keys that are no file names get one of their own, inside the root."""
    store = DependencyStateStore(tmp_path / "state")
    store.write(key, "f")
    assert not store.needs_sync(key, "f")
    assert [path.parent for path in tmp_path.rglob("*.json")] == [tmp_path / "state"]
    assert safe_key(key) != safe_key(key + "-")


def test_readers_never_see_half_a_state(tmp_path: Path) -> None:
    """While writers replace a state, every read finds a whole one."""
    store = DependencyStateStore(tmp_path)
    store.write("k", "0")
    done = threading.Event()

    def rewrite() -> None:
        for number in range(200):
            store.write("k", str(number), {"filler": "x" * 2000})
        done.set()

    writer = threading.Thread(target=rewrite)
    writer.start()
    while not done.is_set():
        assert store.read("k") is not None
    writer.join()
    assert [path.name for path in tmp_path.iterdir()] == ["k.json"]
