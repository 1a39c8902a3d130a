"""The changes of a workspace, taken as a patch, make the same files in another workspace of the same commit."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from debug_server.worktrees import SessionPatch, WorktreePool, apply_patch
from tests.worktrees.places import Remote, fingerprint, make_remote

NAMES = [
    *(b"plain", b"with space", b" lead", b"trail ", b'quo"te', b"ap'os", b"tab\there", b"new\nline", b"back\\slash"),
    *(
        b"gr\xc3\xbcn",
        b"latin-\xfc\xff",
        b"a => b",
        b"{x,y}",
        b"-dash",
        b"a b/b a",
        b"b/a",
        b"/dev/null"[1:],
        b"dots...",
    ),
    *(b"*", b"[x]", b"~", b"@@ -1 +1 @@", b"c\r", b"\x01\x7f"),
]


def _content(rng: random.Random) -> bytes:
    lines = [b"line %d %d" % (number, rng.randrange(4)) for number in range(rng.randrange(1, 40))]
    mixed = b"".join(line + rng.choice([b"\n", b"\r\n", b" \n", b"\t\n", b"\n\n"]) for line in lines)
    plain = b"\n".join(lines) + rng.choice([b"", b"\n", b"\n\n"])
    dos, mac, latin = b"\r\n".join(lines), b"\r".join(lines) + b"\r", b"caf\xe9 \xff\n" * rng.randrange(1, 9)
    return rng.choice([b"", rng.randbytes(rng.randrange(1, 400)), dos, mac, latin, mixed, plain, plain, plain])


def _path(rng: random.Random, root: Path) -> Path:
    parts = [rng.choice(NAMES) for _ in range(rng.randrange(1, 4))]
    return root / os.fsdecode(b"/".join(parts))


def _clear(path: Path, root: Path) -> None:
    """Make room for a file at ``path``: nothing at it, and only folders above it."""
    for parent in reversed(path.relative_to(root).parents[:-1]):
        inner = root / parent
        if inner.is_symlink() or (inner.exists() and not inner.is_dir()):
            inner.unlink()
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)


def _files(root: Path) -> list[Path]:
    return sorted(
        path for path in root.rglob("*") if ".git" not in path.parts and (path.is_symlink() or path.is_file())
    )


def _edit_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(lines) + 1)
        lines[place : place + rng.randrange(3)] = [b"edited %d\n" % rng.randrange(9)] * rng.randrange(3)
    return b"".join(lines)


def _change(rng: random.Random, root: Path) -> None:
    """One random change of a file below ``root``."""
    files = _files(root)
    old = rng.choice(files) if files else None
    action = rng.randrange(7)
    if old is None or action == 0:
        path = _path(rng, root)
        _clear(path, root)
        path.write_bytes(_content(rng))
        path.chmod(rng.choice([0o644, 0o755]))
    elif action == 1:
        path = _path(rng, root)
        _clear(path, root)
        path.symlink_to(os.fsdecode(rng.choice([b"plain", b"../up", b"nowhere \xff", b"/dev/null", b"with\nline"])))
    elif action == 2:
        old.unlink()
    elif action == 3:
        fresh = _path(rng, root)
        if old not in fresh.parents and fresh not in old.parents and fresh != old:
            data, mode = (os.readlink(old), None) if old.is_symlink() else (old.read_bytes(), old.stat().st_mode)
            old.unlink()
            _clear(fresh, root)
            if isinstance(data, bytes):
                fresh.write_bytes(data if rng.random() < 0.5 else _edit_lines(rng, data))
                fresh.chmod(mode or 0o644)
            else:
                fresh.symlink_to(data)
    elif old.is_symlink():
        old.unlink()
        old.write_bytes(_content(rng))
    elif action == 4:
        old.chmod(old.stat().st_mode ^ 0o111)
    elif action == 5:
        old.write_bytes(_content(rng))
    else:
        old.write_bytes(_edit_lines(rng, old.read_bytes()))


def make_random(rng: random.Random, root: Path, changes: int) -> None:
    """So many random changes below ``root``."""
    for _ in range(changes):
        _change(rng, root)


def files_of(root: Path) -> dict[str, tuple[str, str]]:
    """Every file and link; git does not know empty folders."""
    return {name: entry for name, entry in fingerprint(root).items() if entry[0] != "folder"}


@pytest.fixture
def remote(base: Path) -> Remote:
    """A repository with random files of every kind."""
    remote = make_remote(base / "remote")
    rng = random.Random(7)
    for _ in range(4):
        make_random(rng, remote.path, 40)
        remote.commit({})
    return remote


@pytest.mark.parametrize("seed", range(6))
def test_any_change_round_trips(pool: WorktreePool, remote: Remote, base: Path, seed: int) -> None:
    """Byte for byte: binary files, modes, links, renames, line ends, odd names, empty files."""
    rng = random.Random(seed)
    commit = rng.choice(remote.commits)
    with pool.acquire_worktree(commit_sha=commit, owner="a", environment_hash=None) as lease:
        make_random(rng, lease.path, 25)
        wanted, patch = files_of(lease.path), SessionPatch(lease.diff())
    with pool.acquire_worktree(commit_sha=commit, owner="b", environment_hash=None) as lease:
        apply_patch(lease.path, patch, patches_dir=base / "patches")
        assert files_of(lease.path) == wanted
        assert lease.diff() == patch.data
