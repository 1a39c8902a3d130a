"""What a command leaves in its workspace, home and artifacts does nothing outside when the server works with them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.attacks.requests import log_of, open_session, wait_ended
from tests.repositories import make_repository
from tests.running import eventually, rooted_in
from tests.servers import ServerProcess, serving

# The suite shows its own folders, in /tmp, to all isolated commands.
NO_FURTHER_FOLDERS = {"DEBUG_SERVER_ISOLATION_READ": "", "DEBUG_SERVER_ISOLATION_WRITE": ""}
_SECRET = "precious"


class Place:
    """A server, what is outside its sessions, and a way to run a line in a session."""

    def __init__(self, server: ServerProcess, client: httpx.Client, outside: Path) -> None:
        self.server, self.client, self.outside = server, client, outside

    def run(self, session: int, line: str, **spec: Any) -> dict[str, Any]:
        """A shell's line, which must succeed."""
        asked = {"argv": ["sh", "-ec", line], **spec}
        answer = self.client.post(f"/sessions/{session}/commands", json=asked)
        assert answer.status_code == 201, answer.text
        ended = wait_ended(self.client, answer.json()["id"], 100)
        assert ended["exit_code"] == 0, (ended["exit"]["message"], log_of(self.client, ended["id"]))
        return ended

    def marks(self) -> list[str]:
        """The files that somebody made outside."""
        return sorted(path.name for path in self.outside.iterdir() if path.name != "secret")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all: each test has sessions of its own."""
    root = tmp_path_factory.mktemp("traps")
    home = root / "home"
    home.mkdir()
    # Tools of the user, which are shown to isolated commands at their places in the home folder.
    (home / ".cargo/bin").mkdir(parents=True)
    (home / ".rustup").mkdir()
    (home / ".rustup/settings.toml").touch()
    make_repository(root / "server" / "project")
    path = "/usr/local/bin:/usr/bin:/bin"
    with serving(root / "server", variables={"HOME": str(home), "PATH": path, **NO_FURTHER_FOLDERS}) as found:
        with httpx.Client(base_url=found.base_url, headers={"Authorization": f"Bearer {found.token}"}) as client:
            made = client.post(
                "/repository/init", json={"name": "project", "remote_url": str(root / "server" / "project")}
            )
            made.raise_for_status()
        yield found
    eventually(lambda: not rooted_in(root, "no tag"), what="the end of everything")


@pytest.fixture
def place(server: ServerProcess, tmp_path: Path) -> Iterator[Place]:
    """With a folder outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(_SECRET)
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.base_url, headers=headers, timeout=100) as client:
        yield Place(server, client, outside)


def _trap(name: str, outside: Path) -> str:
    """A program that would leave a mark."""
    return f"sh -c 'touch {shlex.quote(str(outside))}/{name}; cat'"


# Each line sets one trap for a later git of the server; $1 is the program that leaves its mark.
_TRAPS = {
    "hooks": "for hook in post-checkout pre-commit post-index-change reference-transaction post-rewrite pre-auto-gc; do"
    " printf '#!/bin/sh\\n%s\\n' \"$1\" > .git/hooks/$hook; chmod +x .git/hooks/$hook; done",
    "hooks-path": "mkdir -p evil; for hook in post-checkout post-index-change reference-transaction; do"
    " printf '#!/bin/sh\\n%s\\n' \"$1\" > evil/$hook; chmod +x evil/$hook; done;"
    ' git config core.hooksPath "$PWD/evil"',
    "file-watcher": 'git config core.fsmonitor "$1"',
    "clean-filter": 'git config filter.evil.clean "$1"; git config filter.evil.smudge "$1";'
    ' git config filter.evil.required true; echo "* filter=evil" > .gitattributes',
    "process-filter": 'git config filter.evil.process "$1"; echo "* filter=evil" > .git/info/attributes',
    "text-conversion": 'git config diff.evil.textconv "$1"; echo "* diff=evil" > .gitattributes',
    "external-diff": 'git config diff.external "$1"; git config diff.evil.command "$1";'
    ' echo "* diff=evil" > .gitattributes',
    "merge-driver": 'git config merge.evil.driver "$1"; echo "* merge=evil" >> .gitattributes',
    "pager": 'git config core.pager "$1"; git config pager.diff "$1"; git config pager.status "$1"',
    "editor": 'git config core.editor "$1"; git config sequence.editor "$1"',
    "ssh-command": 'git config core.sshCommand "$1"; git config remote.origin.url ssh://localhost/x',
    "alternate-refs": 'git config core.alternateRefsCommand "$1"',
    "signatures": 'git config gpg.program "$1"; git config commit.gpgSign true; git config log.showSignature true',
    "credentials": 'git config credential.helper "!$1"',
    "included-file": 'printf "[core]\\n\\tfsmonitor = %s\\n" "$1" > evil.config;'
    ' git config include.path "$PWD/evil.config"',
    "worktree-config": "git config extensions.worktreeConfig true;"
    ' printf "[core]\\n\\tfsmonitor = %s\\n" "$1" > .git/config.worktree',
    "submodule": "mkdir -p sub && git init -q sub && (cd sub && git -c user.name=a -c user.email=a@b commit -q"
    ' --allow-empty -m x && git config core.fsmonitor "$1"); git add sub 2>/dev/null;'
    ' printf \'[submodule "sub"]\\n\\tpath = sub\\n\\turl = ./x\\n\\tupdate = !%s\\n\' "$1" > .gitmodules;'
    ' git config submodule.sub.update "!$1"',
}


@pytest.mark.parametrize("level", ["process", "namespace"])
@pytest.mark.parametrize("trap", _TRAPS)
def test_a_trap_in_the_repository_catches_nobody(place: Place, trap: str, level: str) -> None:
    """The server's own diff, fork and reset of the session run no program that the command named."""
    session = open_session(place.client)
    program = _trap(trap, place.outside)
    place.run(session, f"mkdir -p .git/hooks .git/info; set -- {shlex.quote(program)}; {_TRAPS[trap]}", isolation=level)
    place.run(session, "echo changed > a.txt; echo new > b.txt", isolation=level)
    _work_with(place, session)
    assert place.marks() == []


def test_the_traps_are_real(place: Place, tmp_path: Path) -> None:
    """An ordinary git in such a repository runs the program."""
    session = open_session(place.client)
    program = _trap("file-watcher", place.outside)
    line = f"set -- {shlex.quote(program)}; {_TRAPS['file-watcher']}; git status >/dev/null 2>&1 || true"
    place.run(session, line, isolation="none")
    assert place.marks() == ["file-watcher"]


# Each replaces something that git follows by a way to a repository outside.
_DETOURS = {
    "link-for-git-folder": 'rm -rf .git; ln -s "$1/.git" .git',
    "file-for-git-folder": 'rm -rf .git; echo "gitdir: $1/.git" > .git',
    "work-tree": 'git config core.worktree "$1"',
    "link-for-objects": 'mv .git/objects .git/old; ln -s "$1/.git/objects" .git/objects',
    "link-for-refs": 'rm -rf .git/refs; ln -s "$1/.git/refs" .git/refs',
    "link-for-index": 'rm -f .git/index; ln -s "$1/secret" .git/index',
    "link-for-head": 'rm -f .git/HEAD; ln -s "$1/secret" .git/HEAD',
    "link-for-config": 'rm -f .git/config; ln -s "$1/.git/config" .git/config',
    "common-folder": 'echo "$1/.git" > .git/commondir',
    "alternates": 'mkdir -p .git/objects/info; echo "$1/.git/objects" >> .git/objects/info/alternates',
    "link-for-file": 'rm a.txt; ln -s "$1/secret" a.txt',
    "link-for-folder": 'ln -s "$1" folder; git add -A 2>/dev/null || true',
    "excludes-file": 'git config core.excludesFile "$1/secret"; git config core.attributesFile "$1/secret"',
}


@pytest.mark.parametrize("detour", _DETOURS)
def test_git_follows_no_detour_outside(place: Place, detour: str) -> None:
    """The server reads and writes no repository outside for a session; what is there stays, and is not told."""
    make_repository(place.outside / "victim", {"secret": _SECRET, "a.txt": _SECRET})
    before = _snapshot(place.outside)
    session = open_session(place.client)
    place.run(session, f'set -- "{place.outside}/victim"; {_DETOURS[detour]}', isolation="namespace")
    said = _work_with(place, session)
    assert _SECRET not in said
    assert _snapshot(place.outside) == before


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _work_with(place: Place, session: int) -> str:
    """What the server itself does with a session; it may refuse."""
    said = [place.client.get(f"/sessions/{session}/diff").text]
    forked = place.client.post(f"/sessions/{session}/fork", json={})
    if forked.status_code == 201:
        number = forked.json()["items"][0]["id"]
        said.append(place.client.get(f"/sessions/{number}/diff").text)
        place.client.delete(f"/sessions/{number}")
    said.append(place.client.post(f"/sessions/{session}/reset", json={}).text)
    place.client.delete(f"/sessions/{session}")
    return "\n".join(said)


_ARTIFACTS = {
    "link": ("ln -s {outside}/secret found", "found"),
    "link-to-folder": ("ln -s {outside} folder", "folder/secret"),
    "link-to-folder-by-pattern": ("ln -s {outside} folder", "folder/*"),
    "link-below": ("mkdir deep; ln -s {outside} deep/folder", "**/secret"),
    "link-to-key": ("ln -s {data}/data/seal.key found", "found"),
    "link-to-process": ("ln -s /proc/self/environ found", "found"),
    "link-to-link": ("ln -s {outside}/secret one; ln -s one found", "found"),
    "pipe": ("mkfifo found", "found"),
}


@pytest.mark.parametrize("name", _ARTIFACTS)
def test_an_artifact_is_no_way_to_read_outside(place: Place, name: str) -> None:
    """What a link in the workspace points to is not kept as an artifact."""
    line, pattern = _ARTIFACTS[name]
    line = line.format(outside=place.outside, data=place.server.root / ".artifacts")
    session = open_session(place.client)
    command = place.run(session, f"echo mine > own; {line}", artifacts=[pattern, "own"], isolation="namespace")
    assert place.client.get(f"/commands/{command['id']}").json()["status"] == "succeeded"
    items = place.client.get(f"/sessions/{session}/artifacts").json()["items"]
    kept = {place.client.get(f"/sessions/{session}/artifacts/{item['id']}").content for item in items}
    assert kept - {b""} == {b"mine\n"}  # the log of the command is empty
    place.client.delete(f"/sessions/{session}")


_PLANTED = {
    "link-to-old-root": 'ln -s "/old$1"',
    "link-out": 'ln -s "$1"',
    "link-to-root": "ln -s /",
    "link-to-processes": "ln -s /proc/1/root",
}


@pytest.mark.parametrize("plant", _PLANTED)
def test_links_in_the_own_home_lead_later_commands_nowhere(place: Place, plant: str) -> None:
    """A link where the next command's root has a mount point creates nothing outside; the next command works."""
    session = open_session(place.client)
    line = f'set -- "{place.outside}"; cd "$HOME"; mv .rustup old-rustup; mv .cargo old-cargo;'
    line += f" {_PLANTED[plant]} .rustup; {_PLANTED[plant]} .cargo"
    place.run(session, line, isolation="namespace")
    place.run(session, "true", isolation="namespace")
    ended = place.run(session, "echo mine > own; cat own", isolation="namespace")
    assert log_of(place.client, ended["id"]) == "mine\n"
    assert place.marks() == []
    place.client.delete(f"/sessions/{session}")


def test_the_own_folders_go_with_the_session(place: Place) -> None:
    """What a command leaves in its home and /tmp, even without permission to read it, is removed with the session."""
    session = open_session(place.client)
    line = 'mkdir -p "$HOME/a/b" /tmp/c; echo x > "$HOME/a/b/c"; echo x > /tmp/c/d; chmod 000 "$HOME/a" /tmp/c'
    place.run(session, line, isolation="namespace")
    folders = place.server.root / ".artifacts/private" / str(session)
    assert folders.is_dir()
    place.client.delete(f"/sessions/{session}").raise_for_status()
    eventually(lambda: not folders.exists(), what="the removal of the session's own folders")


def test_sessions_share_no_own_folder(place: Place) -> None:
    """A later command of the same session finds its files again; one of another session finds none."""
    one, other = open_session(place.client), open_session(place.client)
    place.run(one, 'echo mine > "$HOME/file"; echo mine > /tmp/file', isolation="namespace")
    place.run(one, 'cat "$HOME/file" /tmp/file', isolation="namespace")
    place.run(other, 'test ! -e "$HOME/file" && test ! -e /tmp/file', isolation="namespace")
    assert not (Path("/tmp/file").exists() and os.stat("/tmp/file").st_size == 5)
