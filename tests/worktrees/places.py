"""Real repositories, pools and trees for the tests of workspaces."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debug_server.store import MetadataStore, open_store
from debug_server.worktrees import WorktreePool, WorktreePoolSettings
from debug_server.worktrees.overlay import why_overlay_fails

BACKENDS = ("overlay", "pool")
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "test",
    "GIT_AUTHOR_EMAIL": "test@localhost",
    "GIT_COMMITTER_NAME": "test",
    "GIT_COMMITTER_EMAIL": "test@localhost",
}


def git(*arguments: str, cwd: Path, stdin: bytes = b"") -> str:
    """Plain git as a user without configuration runs it; it must succeed."""
    done = subprocess.run(["git", *arguments], cwd=cwd, env=ENVIRONMENT, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode(errors="surrogateescape").strip()


@dataclass(slots=True, kw_only=True)
class Remote:
    """A repository that somebody pushes to."""

    path: Path
    commits: list[str] = field(default_factory=list)

    def commit(self, files: dict[str, str | bytes | None], message: str = "change") -> str:
        """Write (or with None delete) files and commit them."""
        for name, content in files.items():
            path = self.path / name
            if content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        git("add", "-A", cwd=self.path)
        git("commit", "-q", "--no-verify", "--allow-empty", "-m", message, cwd=self.path)
        self.commits.append(git("rev-parse", "HEAD", cwd=self.path))
        return self.commits[-1]


def make_remote(path: Path) -> Remote:
    """An empty repository on branch main."""
    path.mkdir(parents=True)
    git("init", "-q", "-b", "main", cwd=path)
    return Remote(path=path)


def small_remote(path: Path) -> Remote:
    """Three commits over a handful of files of every kind."""
    remote = make_remote(path)
    (path / "link").symlink_to("docs/guide.txt")
    remote.commit({"README": "one\n", "docs/guide.txt": "guide\n", "src/app.py": "print(1)\n", ".gitignore": "*.pyc\n"})
    script = path / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    remote.commit({"README": "two\n"})
    remote.commit({"README": "three\n", "src/app.py": None, "src/new.py": "print(3)\n"})
    return remote


def open_pool(base: Path, remote: Remote | Path, backend: str, **changes: Any) -> WorktreePool:
    """A pool over a store of its own below ``base``."""
    store = open_store(f"sqlite:///{base}/store.db", now=changes.get("now"))
    return pool_of(store, base, remote, backend, **changes)


def pool_of(store: MetadataStore, base: Path, remote: Remote | Path, backend: str, **changes: Any) -> WorktreePool:
    """A pool over a given store; the repository is registered once."""
    address = str(remote.path if isinstance(remote, Remote) else remote)
    known = [row for row in store.repositories.page() if row.name == "repo"]
    repository = known[0] if known else store.repositories.create("repo", address)
    clock, in_use = changes.pop("now", None), changes.pop("in_use", None)
    settings = WorktreePoolSettings(
        repository_id=repository.id,
        remote_url=address,
        bare_path=base / "repos" / "repo.bare",
        worktree_root=base / "worktrees" / "repo",
        backend=backend,
        **changes,
    )
    return WorktreePool(store, settings, now=clock, in_use=in_use)


def missing_for(backend: str, folder: Path) -> str | None:
    """Why a backend cannot be tested here."""
    return why_overlay_fails(folder) if backend == "overlay" else None


def fingerprint(root: Path) -> dict[str, tuple[str, str]]:
    """Every entry below ``root`` but ``.git``: its kind with the executable bit, and its content or rights."""
    entries = {}
    for folder, names, files in os.walk(root):
        if Path(folder) == root and ".git" in names:
            names.remove(".git")
        for name in [*names, *files]:
            path = Path(folder, name)
            if path != root / ".git":
                entries[str(path.relative_to(root))] = _entry(path)
    return entries


def _entry(path: Path) -> tuple[str, str]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "link", os.readlink(path)
    if stat.S_ISDIR(mode):
        return "folder", f"{stat.S_IMODE(mode):o}"
    if not stat.S_ISREG(mode):
        return "special", f"{mode:o}"
    kind = "program" if mode & stat.S_IXUSR else "file"
    return kind, hashlib.sha256(path.read_bytes()).hexdigest()


def make_special_files(folder: Path) -> None:
    """A pipe, a socket and, for whoever may, a device."""
    os.mkfifo(folder / "pipe")
    os.mknod(folder / "socket", stat.S_IFSOCK | 0o600)
    with suppress(PermissionError):
        os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))


def is_empty(folder: Path) -> bool:
    """Whether nothing is in it, or it is not there."""
    return not list(folder.glob("*"))


def reference(remote: Path, commit: str, place: Path) -> Path:
    """What git itself checks out."""
    git("worktree", "add", "-q", "--detach", str(place), commit, cwd=remote)
    return place


def random_remote(path: Path, *, commits: int, seed: int) -> Remote:
    """A history of symlinks, modes, end-of-line rules, renames, deletions and files that become folders."""
    rng = random.Random(seed)
    remote = make_remote(path)
    state: dict[str, tuple[str, bytes]] = {}
    stream = []
    for number in range(commits):
        before = dict(state)
        _mutate(rng, state, number)
        stream.append(f"commit refs/heads/main\ncommitter t <t@localhost> {1_600_000_000 + number} +0000\ndata 0\n")
        # Deletions first: a folder may have taken the place of a file.
        stream.extend(f"D {name}\n" for name in before if name not in state)
        for name, (mode, data) in state.items():
            if before.get(name) != (mode, data):
                stream.append(f"M {mode} inline {name}\ndata {len(data)}\n{data.decode('latin-1')}\n")
    git("fast-import", "--quiet", cwd=path, stdin="".join(stream).encode("latin-1"))
    remote.commits.extend(git("rev-list", "--reverse", "main", cwd=path).split())
    return remote


def _mutate(rng: random.Random, state: dict[str, tuple[str, bytes]], number: int) -> None:
    for _ in range(40 if number == 0 else rng.randrange(1, 6)):
        _change(rng, state, number)
    if number % 7 == 3:
        rules = rng.choice(
            [b"*.txt text eol=crlf\n", b"*.txt text eol=lf\n*.id ident\n", b"* text=auto\n*.bin -text\n"]
        )
        state[rng.choice([".gitattributes", "d1/.gitattributes"])] = ("100644", rules)


def _change(rng: random.Random, state: dict[str, tuple[str, bytes]], number: int) -> None:
    name = f"d{rng.randrange(5)}/s{rng.randrange(3)}/f{rng.randrange(9)}.{rng.choice(['txt', 'py', 'bin', 'id'])}"
    action = rng.random()
    if state and action < 0.15:
        del state[rng.choice(sorted(state))]
    elif state and action < 0.3:
        old = rng.choice(sorted(state))
        state[f"moved/{number}-{rng.randrange(99)}.txt"] = state.pop(old)
    elif action < 0.4:
        state[name + ".link"] = ("120000", rng.choice([b"../elsewhere", b"/etc/hostname", name.encode()]))
    elif action < 0.45:
        state.pop(f"swap{rng.randrange(2)}", None)
        for inner in [entry for entry in state if entry.startswith("swap")]:
            del state[inner]
        state[rng.choice(["swap0", "swap0/inside", "swap1/a/b"])] = ("100644", b"x\n")
    else:
        body = rng.choice([b"line\n", b"line\r\n", b"\0\1\n", b"$Id$\n"]) * rng.randrange(1, 30)
        state[name] = (rng.choice(["100644", "100755"]), body + str(number).encode())
