"""The mirror: fetched when it has to be, whole or rebuilt, and clear about what it cannot reach."""

from __future__ import annotations

import base64
import os
import re
import resource
import shutil
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from debug_server.errors import InvalidInputError, RemoteUnreachableError, UnknownCommitError, WorktreePoolError
from debug_server.worktrees.git import GitPlace, run_git
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.processes import processes_under
from tests.running import eventually
from tests.worktrees.conftest import MakePool
from tests.worktrees.places import Remote, git, make_remote, open_pool


@pytest.fixture
def mirror(base: Path, remote: Remote) -> Mirror:
    """A mirror of the small repository."""
    return Mirror(base / "repo.bare", str(remote.path))


def test_real_refspecs(mirror: Mirror, remote: Remote) -> None:
    """Branches and tags are mirrored under their own names, and pruned when they are gone."""
    git("branch", "side/one", cwd=remote.path)
    git("tag", "v1", cwd=remote.path)
    assert mirror.resolve("side/one") == remote.commits[-1]
    refs = git("for-each-ref", "--format=%(refname)", cwd=mirror.bare_path).split()
    assert refs == ["refs/heads/main", "refs/heads/side/one", "refs/tags/v1"]
    git("branch", "-D", "side/one", cwd=remote.path)
    git("branch", "side", cwd=remote.path)  # a name where a folder was
    mirror.fetch()
    assert "refs/heads/side/one" not in git("for-each-ref", cwd=mirror.bare_path)
    assert mirror.resolve("side") == remote.commits[-1]


def test_known_commits_need_no_remote(mirror: Mirror, remote: Remote, base: Path) -> None:
    """A commit that the mirror has is served while the remote is away; a name is not guessed."""
    mirror.ensure()
    remote.path.rename(base / "away")
    assert mirror.resolve(remote.commits[0]) == remote.commits[0]
    assert mirror.resolve(remote.commits[0][:7]) == remote.commits[0]
    with pytest.raises(RemoteUnreachableError):
        mirror.resolve("main")


def test_refresh_age(base: Path, remote: Remote) -> None:
    """Within the refresh age a branch is what it was at the last fetch."""
    patient = Mirror(base / "repo.bare", str(remote.path), refresh_age=3600)
    first = patient.resolve("main")
    remote.commit({"README": "later\n"})
    assert patient.resolve("main") == first
    assert Mirror(base / "repo.bare", str(remote.path)).resolve("main") == remote.commits[-1]


def test_commit_of_no_branch(mirror: Mirror, remote: Remote) -> None:
    """A commit that only its full sha names is fetched by it."""
    mirror.ensure()
    lonely = remote.commit({"README": "lonely\n"})
    git("reset", "-q", "--hard", "HEAD~1", cwd=remote.path)
    git("update-ref", "refs/pull/1/head", lonely, cwd=remote.path)
    assert mirror.resolve(lonely) == lonely


def test_detached_head_of_the_remote(mirror: Mirror, remote: Remote, base: Path) -> None:
    """HEAD means what the remote has checked out, a branch or not; of an empty repository it is unknown."""
    assert mirror.resolve("HEAD") == remote.commits[-1]
    git("checkout", "-q", "--detach", cwd=remote.path)
    lonely = remote.commit({"README": "detached\n"})
    assert mirror.resolve("HEAD") == lonely
    empty = make_remote(base / "empty")
    with pytest.raises(UnknownCommitError, match="'HEAD'"):
        Mirror(base / "empty.bare", str(empty.path)).resolve("HEAD")


def test_ambiguous_short_sha(base: Path) -> None:
    """A beginning that several commits share is refused with the advice to give more digits."""
    remote = make_remote(base / "many")
    seen: dict[str, str] = {}
    stream = "".join(
        f"commit refs/heads/main\ncommitter t <t@localhost> {1_600_000_000 + number} +0000\ndata 0\n"
        for number in range(1500)
    )
    git("fast-import", "--quiet", cwd=remote.path, stdin=stream.encode())
    twins = ""
    for commit in git("rev-list", "main", cwd=remote.path).split():
        twins = commit[:4] if commit[:4] in seen else twins
        seen[commit[:4]] = commit
    assert twins
    with pytest.raises(UnknownCommitError, match="more digits"):
        Mirror(base / "many.bare", str(remote.path)).resolve(twins)


def test_names_that_git_understands(mirror: Mirror, remote: Remote) -> None:
    """``@``, heads/X, tags/X, refs/… and origin/X mean what they mean to git."""
    git("tag", "-a", "v1", "-m", "one", remote.commits[0], cwd=remote.path)
    for name in ("@", "HEAD", "main", "heads/main", "refs/heads/main", "origin/main"):
        assert mirror.resolve(name) == remote.commits[-1]
    for name in ("v1", "tags/v1", "refs/tags/v1"):
        assert mirror.resolve(name) == remote.commits[0]
    with pytest.raises(UnknownCommitError, match="'tags/main'"):
        mirror.resolve("tags/main")


def test_steps_to_ancestors(mirror: Mirror, remote: Remote) -> None:
    """``^`` and ``~`` lead to parents from any name, and ``^{commit}`` to a tag's commit."""
    git("tag", "-a", "v1", "-m", "one", remote.commits[1], cwd=remote.path)
    first, second, third = remote.commits
    names = {
        "HEAD^": second,
        "main~1": second,
        "HEAD~2": first,
        "main^^": first,
        "main~": second,
        "@~1": second,
        "v1^{commit}": second,
        "v1^{}": second,
        "v1^0": second,
        "v1~1": first,
        "refs/heads/main~2": first,
        f"{third}^": second,
        f"{third[:9]}~2": first,
        "origin/main^1~1": first,
    }
    assert {name: mirror.resolve(name) for name in names} == names
    with pytest.raises(UnknownCommitError, match=r"'main~3' names no commit: 'main' is .*, which has no ancestor '~3'"):
        mirror.resolve("main~3")
    for name in ("main^{tree}", "main~x", "^main", "~1", "main@{1}", "HEAD^^{/x}"):
        with pytest.raises(UnknownCommitError, match=re.escape(repr(name))):
            mirror.resolve(name)


def test_refs_that_only_the_remote_has(mirror: Mirror, remote: Remote) -> None:
    """A pull request's ref is fetched by its name, again when it has moved; one that does not exist is unknown."""
    mirror.ensure()
    for _ in range(2):
        wanted = remote.commit({"README": f"pulled {len(remote.commits)}\n"})
        git("reset", "-q", "--hard", "HEAD~1", cwd=remote.path)
        git("update-ref", "refs/pull/7/head", wanted, cwd=remote.path)
        assert mirror.resolve("refs/pull/7/head") == mirror.resolve("pull/7/head") == wanted
        assert mirror.resolve("pull/7/head~1") == remote.commits[2]
        mirror.fetch()
    git("update-ref", "-d", "refs/pull/7/head", cwd=remote.path)
    for name in ("refs/pull/7/head", "pull/8/head", "refs/nothing"):
        with pytest.raises(UnknownCommitError, match=name):
            mirror.resolve(name)


@pytest.mark.parametrize("name", ["v1", "2024", "side/v1"])
def test_a_branch_and_a_tag_of_one_name(mirror: Mirror, remote: Remote, name: str) -> None:
    """A name that is a branch and a tag is refused with both commits, unless they are one commit or it is in full."""
    first, last = remote.commits[0], remote.commits[-1]
    git("branch", name, last, cwd=remote.path)
    git("tag", "-a", name, "-m", "x", last, cwd=remote.path)
    assert mirror.resolve(name) == last
    git("tag", "-f", name, first, cwd=remote.path)
    with pytest.raises(UnknownCommitError, match="ambiguous") as caught:
        mirror.resolve(name)
    assert f"refs/heads/{name} ({last})" in str(caught.value)
    assert f"refs/tags/{name} ({first})" in str(caught.value)
    assert (mirror.resolve(f"refs/heads/{name}"), mirror.resolve(f"refs/tags/{name}")) == (last, first)
    assert (mirror.resolve(f"heads/{name}"), mirror.resolve(f"tags/{name}")) == (last, first)


@pytest.mark.parametrize("detached", [False, True])
def test_shallow_clone(base: Path, remote: Remote, backend: str, detached: bool) -> None:
    """A shallow clone serves the commits that it has, and more once it has more; git works in a workspace of it."""
    shallow = base / "shallow"
    git("clone", "-q", "--depth", "1", remote.path.as_uri(), str(shallow), cwd=base)
    newest = remote.commits[-1]
    if detached:
        git("checkout", "-q", "--detach", cwd=shallow)
        git("branch", "-D", "main", cwd=shallow)
    pool = open_pool(base, shallow, backend)
    for ref in ("HEAD", newest):
        with pool.acquire_worktree(commit_sha=ref, owner="t", environment_hash=None) as lease:
            assert (lease.path / "README").read_text() == "three\n"
            assert git("log", "--format=%H", cwd=lease.path) == newest
            (lease.path / "README").write_text("four\n")
            git("commit", "-qam", "four", cwd=lease.path)
            assert b"+four" in lease.diff()
    with pytest.raises(UnknownCommitError, match=remote.commits[0]):
        pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None)
    git("fetch", "-q", "--unshallow", cwd=shallow)
    with pool.acquire_worktree(commit_sha=remote.commits[1], owner="t", environment_hash=None) as lease:
        assert git("log", "--format=%H", cwd=lease.path).split() == remote.commits[1::-1]


@pytest.mark.parametrize(
    "why",
    [
        "ssh: connect to host host port 22: Connection refused",
        "ssh: Could not resolve hostname host: Name or service not known",
        "git@host: Permission denied (publickey).",
        "Host key verification failed.",
    ],
)
def test_why_ssh_failed_is_told(base: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """What ssh says before git gives up is in the error, however long the host's greeting was; git's advice is not."""
    program = base / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8 9; do echo greeting $n >&2; done\necho '{why}' >&2\nexit 255\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(RemoteUnreachableError) as caught:
        Mirror(base / "x.bare", "ssh://git@host/x").ensure()
    assert why in str(caught.value)
    assert "access rights" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("address", ["ext::sh -c id", "gopher://host/x", "-x", "", "a\nb", "fd::3"])
def test_address_is_checked(base: Path, address: str) -> None:
    """An address that would run something, or is none, is refused before git sees it."""
    with pytest.raises(InvalidInputError, match="remote_url"):
        Mirror(base / "x.bare", address)


def test_unreachable_remote(base: Path) -> None:
    """A remote that is not there is a RemoteUnreachableError, and leaves no half mirror."""
    with socket.socket() as taken:  # bound and deaf: nobody else can come to listen there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for address in (str(base / "nowhere"), f"http://127.0.0.1:{port}/x.git", f"git://127.0.0.1:{port}/x"):
            with pytest.raises(RemoteUnreachableError):
                Mirror(base / "x.bare", address).ensure()
            assert not (base / "x.bare").exists()
    assert [path.name for path in base.iterdir()] == [".x.bare.lock"]


@pytest.mark.parametrize(
    "address", ["https://me:s3cret@host/x.git", "https://s3cret@host/x", "ssh://me:s3cret@host/x", "HTTP://s3cret@host"]
)
def test_credentials_in_an_address_are_refused(base: Path, address: str) -> None:
    """They would lie in the store and in git's configuration: the message says where they go, and shows none."""
    with pytest.raises(InvalidInputError, match=r"\.netrc") as caught:
        Mirror(base / "x.bare", address)
    assert "s3cret" not in str(caught.value)
    Mirror(base / "x.bare", "ssh://git@host/x")
    Mirror(base / "x.bare", "git@host:x")


def test_credentials_come_from_netrc(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ~/.netrc says of the host is sent to it, and to nobody else."""
    heard: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers.get("Authorization"))
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic realm=x")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    monkeypatch.setenv("HOME", str(base))
    (base / ".netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with pytest.raises(RemoteUnreachableError) as caught:
            Mirror(base / "x.bare", f"http://127.0.0.1:{server.server_port}/x.git").ensure()
        server.shutdown()
        thread.join()
    assert f"Basic {base64.b64encode(b'me:s3cret').decode()}" in heard
    assert "s3cret" not in str(caught.value)


def test_refresh_and_repack(base: Path, remote: Remote) -> None:
    """A mirror that is old enough is fetched without being asked; joining packs keeps every commit that ever was."""
    mirror = Mirror(base / "x.bare", str(remote.path))
    assert not mirror.refresh(older_than=0)  # not there yet
    mirror.ensure()
    lost = remote.commit({"README": "about to be lost\n"})
    assert not mirror.refresh(older_than=3600)
    assert mirror.refresh(older_than=0)
    git("reset", "-q", "--hard", "HEAD~1", cwd=remote.path)
    for number in range(5):
        remote.commit({"README": f"{number}\n"})
        mirror.fetch()
    assert not mirror.repack(older_than=3600)
    assert mirror.repack(older_than=0)
    assert len(list((mirror.objects / "pack").glob("*.pack"))) < 5
    remote.path.rename(base / "gone")
    assert mirror.resolve(lost) == lost


def test_a_commit_beyond_the_size_limit(base: Path, remote: Remote, make_pool: MakePool) -> None:
    """A commit whose files are larger than max_tree_bytes is refused with both numbers; a smaller one is served."""
    small = remote.commits[-1]
    large = remote.commit({"large": "x" * 100_000})
    pool = make_pool(max_tree_bytes=50_000)
    with pytest.raises(WorktreePoolError, match=r"max_tree_bytes \(50000\)"):
        pool.acquire_worktree(commit_sha=large, owner="t", environment_hash=None)
    pool.acquire_worktree(commit_sha=small, owner="t", environment_hash=None).release()


def test_a_commit_with_a_hundred_million_files(base: Path, remote: Remote, make_pool: MakePool) -> None:
    """Eight folders can name 100 million files: they are counted up to the limit only, and never held in memory."""
    entry = f"100644 blob {_write(remote, b'one line', 'hash-object', '-w', '--stdin')}"
    for _ in range(8):
        names = "".join(f"{entry}\t{number}\n" for number in range(10))
        entry = f"040000 tree {_write(remote, names.encode(), 'mktree')}"
    commit = _write(remote, b"Large", "commit-tree", entry.split()[2])
    git("update-ref", "refs/heads/large", commit, cwd=remote.path)
    pool = make_pool(max_tree_bytes=50_000)
    with pytest.raises(WorktreePoolError, match=r"at least 5000[0-9] bytes, more than max_tree_bytes"):
        pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None)


def _write(remote: Remote, data: bytes, *arguments: str) -> str:
    line = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
    return subprocess.run(line, cwd=remote.path, input=data, capture_output=True, check=True).stdout.decode().strip()


def test_silent_remote_is_given_up(base: Path) -> None:
    """A remote that accepts and never answers costs the time limit and leaves no git behind."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"git://127.0.0.1:{server.getsockname()[1]}/x"
        with pytest.raises(WorktreePoolError, match=r"did not end within 0\.5 s"):
            Mirror(base / "x.bare", address, fetch_timeout=0.5).ensure()
        # While the remote is still silent: a git that lives ends by itself once the connection is gone.
        eventually(lambda: set(processes_under(base)) <= {os.getpid()}, what="the end of git")


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_fetch_limit(base: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch, late: float) -> None:
    """A repository larger than the limit is refused, and no part of it stays; also where the limit is set late."""
    limit = resource.prlimit

    def limit_late(*arguments: Any) -> None:
        time.sleep(late)  # as a process that others keep from running
        limit(*arguments)

    monkeypatch.setattr(resource, "prlimit", limit_late)
    remote.commit({"big.bin": os.urandom(3_000_000)})
    with pytest.raises(WorktreePoolError, match="larger than the fetch limit"):
        Mirror(base / "x.bare", str(remote.path), max_fetch_bytes=1_000_000).ensure()
    assert not (base / "x.bare").exists()


def break_head(bare: Path) -> None:
    (bare / "HEAD").unlink()


def break_refs(bare: Path) -> None:
    shutil.rmtree(bare / "refs")


def break_packs(bare: Path) -> None:
    for path in bare.glob("objects/pack/*.pack"):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:40])
    shutil.rmtree(bare / "objects" / "00", ignore_errors=True)


def break_objects(bare: Path) -> None:
    shutil.rmtree(bare / "objects")


def break_config(bare: Path) -> None:
    (bare / "config").write_text("[core\n")


@pytest.mark.parametrize("harm", [break_head, break_refs, break_packs, break_objects, break_config])
def test_broken_mirror_is_rebuilt(base: Path, remote: Remote, backend: str, harm: object) -> None:
    """Whatever of the mirror is damaged, the next workspace is right, without anyone's help."""
    pool = open_pool(base, remote, backend)
    bare = pool.ensure_bare_repo()
    git("-c", "gc.auto=0", "repack", "-adq", cwd=bare)
    assert callable(harm)
    harm(bare)
    with pool.acquire_worktree(commit_sha=remote.commits[1], owner="t", environment_hash=None) as lease:
        assert (lease.path / "README").read_text() == "two\n"
        assert git("log", "--format=%H", cwd=lease.path).split() == remote.commits[1::-1]


def test_half_fetched_mirror(base: Path, remote: Remote, backend: str) -> None:
    """A mirror that has the commit but not all of its files is noticed at checkout and rebuilt."""
    pool = open_pool(base, remote, backend)
    bare = pool.ensure_bare_repo()
    for pack in list(bare.glob("objects/pack/*.pack")):
        moved = base / pack.name
        pack.rename(moved)
        git("unpack-objects", "-q", cwd=bare, stdin=moved.read_bytes())
    blob = git("rev-parse", f"{remote.commits[0]}:README", cwd=bare)
    (bare / "objects" / blob[:2] / blob[2:]).unlink()
    with pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None) as lease:
        assert (lease.path / "README").read_text() == "one\n"


def test_leftovers_of_a_killed_fetch(mirror: Mirror, remote: Remote) -> None:
    """Lock files and half packs of a killed git do not stop the next fetch, and go."""
    mirror.ensure()
    remote.commit({"README": "more\n"})
    lock, half = mirror.bare_path / "refs" / "heads" / "main.lock", mirror.objects / "pack" / "tmp_pack_x"
    for path in (lock, half, mirror.bare_path / "packed-refs.lock"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert mirror.resolve("main") == remote.commits[-1]
    assert not half.exists()


def test_changed_address(base: Path, remote: Remote) -> None:
    """A repository that moved is fetched from its new address."""
    Mirror(base / "repo.bare", str(remote.path)).ensure()
    remote.path.rename(base / "moved")
    remote.path = base / "moved"
    newest = remote.commit({"README": "moved\n"})
    assert Mirror(base / "repo.bare", str(base / "moved")).resolve("main") == newest


def test_many_fetch_once(base: Path, remote: Remote) -> None:
    """Eight threads that ask for a new mirror at once all get it, and one clone is made."""
    mirrors = [Mirror(base / "repo.bare", str(remote.path)) for _ in range(8)]
    threads = [threading.Thread(target=item.ensure) for item in mirrors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mirrors[0].resolve(remote.commits[0]) == remote.commits[0]
    assert sorted(path.name for path in base.iterdir() if "repo.bare" in path.name) == [
        ".repo.bare.fetched",
        ".repo.bare.lock",
        "repo.bare",
    ]


def test_git_runs_with_our_configuration_only(base: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's configuration nor git variables of the server reach our git."""
    home = base / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[alias]\n\tx = !touch pwned\n[test]\n\tvalue = user\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'test.value=variable'")
    place = GitPlace(git_dir=remote.path / ".git", work_tree=remote.path)
    assert run_git("config", "test.value", place=place).stdout == b""
    assert run_git("config", "core.hooksPath", place=place).stdout == b"/dev/null\n"
    assert run_git("config", "credential.helper", place=place).stdout == b"\n"
