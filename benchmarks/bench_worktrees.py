"""Measures workspaces on a generated repository: acquire, first status, patch, release, against plain git."""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from debug_server.store import open_store
from debug_server.worktrees import SessionPatch, WorktreeLease, WorktreePool, WorktreePoolSettings, apply_patch

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@localhost",
}


def git(*arguments: str, cwd: Path, stdin: bytes | None = None) -> bytes:
    """Plain git, as a user without configuration runs it."""
    return subprocess.run(
        ["git", *arguments], cwd=cwd, env=ENVIRONMENT, input=stdin, check=True, capture_output=True
    ).stdout


def generate(folder: Path, *, files: int, commits: int) -> list[str]:
    """A repository of ``files`` files whose every commit changes a few; returns the commits, oldest first."""
    rng = random.Random(7)
    git("init", "-q", "-b", "main", cwd=folder)
    names = [f"pkg{number % 97:02d}/sub{number % 7}/module_{number}.py" for number in range(files)]
    stream: list[bytes] = []
    for number in range(commits):
        changed = names if number == 0 else rng.sample(names, 5)
        stream.append(
            f"commit refs/heads/main\ncommitter b <b@localhost> {1_600_000_000 + number} +0000\ndata 1\nx\n".encode()
        )
        for name in changed:
            body = f"# {name} at {number}\n".encode() + b"value = 1\n" * rng.randrange(20, 200)
            stream.append(b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(body), body))
    git("fast-import", "--quiet", cwd=folder, stdin=b"".join(stream))
    git("reset", "-q", "--hard", cwd=folder)
    return git("rev-list", "--reverse", "main", cwd=folder).decode().split()


def timed(action: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def show(label: str, values: list[float]) -> float:
    """Print the median, the worst and the number of samples."""
    middle = statistics.median(values)
    print(f"{label:52s} p50 {middle:9.2f} ms   max {max(values):9.2f} ms   n={len(values)}")
    return middle


def measure(base: Path, *, backend: str, commits: list[str], remote: Path, rounds: int) -> None:
    """One backend's figures."""
    store = open_store(f"sqlite:///{base}/{backend}.db")
    repository = store.create_repository(name=f"bench-{backend}", remote_url=str(remote))
    settings = WorktreePoolSettings(
        repository_id=repository.id,
        remote_url=str(remote),
        bare_path=base / f"{backend}.bare",
        worktree_root=base / backend,
        backend=backend,
    )
    pool = WorktreePool(store, settings)
    show(f"{backend}: mirror", [timed(pool.ensure_bare_repo)])

    def acquire(commit: str) -> float:
        started = time.perf_counter()
        held.append(pool.acquire_worktree(commit_sha=commit, owner="bench", environment_hash="e"))
        return (time.perf_counter() - started) * 1000

    held: list[WorktreeLease] = []
    known = commits[150]
    show(f"{backend}: first commit ever", [acquire(known)])
    held.pop().release()
    acquires, releases = [], []
    for _ in range(rounds):
        acquires.append(acquire(known))
        releases.append(timed(held.pop().release))
    show(f"{backend}: acquire, known commit", acquires)
    show(f"{backend}: release", releases)
    unseen = []
    for commit in commits[151 : 151 + rounds]:
        unseen.append(acquire(commit))
        held.pop().release()
    show(f"{backend}: acquire, neighbouring unseen commit", unseen)
    statuses, patches = [], []
    for number in range(rounds):
        acquire(known)
        path = held[-1].path
        statuses.append(timed(partial(git, "status", "--porcelain", cwd=path)))
        changed = sorted(path.glob("pkg0*/sub*/*.py"))[:10]
        for name in changed:
            name.write_text(f"# patched {number}\n" + name.read_text())
        diff = held[-1].diff()
        held.pop().release()
        acquire(known)
        patch, path = SessionPatch(diff), held[-1].path
        patches.append(timed(partial(apply_patch, path, patch, patches_dir=base / "patches")))
        held.pop().release()
    show(f"{backend}: first git status", statuses)
    show(f"{backend}: patch of 10 files", patches)
    acquire(known)
    (held[-1].path / "pkg00" / "new.py").write_text("x\n")
    forks = []
    for _ in range(5):
        forks.append(timed(lambda: held.extend(held[0].fork(1))))
    show(f"{backend}: fork", forks)
    show(f"{backend}: diff", [timed(held[0].diff) for _ in range(5)])
    for lease in held:
        lease.release()


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=7000)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-worktrees-") as name:
        base = Path(name)
        remote = base / "remote"
        remote.mkdir()
        commits = generate(remote, files=options.files, commits=options.commits)
        plain = []
        for number in range(3):
            plain.append(
                timed(partial(git, "worktree", "add", "--detach", str(base / f"p{number}"), commits[150], cwd=remote))
            )
        show("git worktree add", plain)
        warm = base / "p0"
        git("status", "--porcelain", cwd=warm)
        show(
            "git status, warm plain worktree", [timed(lambda: git("status", "--porcelain", cwd=warm)) for _ in range(9)]
        )
        for backend in ("overlay", "pool") if os.geteuid() == 0 else ("pool",):
            measure(base, backend=backend, commits=commits, remote=remote, rounds=options.rounds)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
