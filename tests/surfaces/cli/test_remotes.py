"""Remotes of repositories on the command line: whose folder a path starts in."""

from __future__ import annotations

from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError
from debug_server.surfaces.cli.backend import Backend
from debug_server.surfaces.cli.local_backend import LocalBackend
from debug_server.surfaces.cli.remote_backend import RemoteBackend
from debug_server.surfaces.cli.remotes import name_for, remote_for
from tests.repositories import make_repository
from tests.surfaces.cli.conftest import Terminal


def _remote_backend(url: str) -> Backend:
    return RemoteBackend(url, "t", verify_tls=True, server_uid=None)


def test_a_relative_path_starts_in_the_callers_folder(terminal: Terminal) -> None:
    """With a server on this machine, whose own folder is another, as without one."""
    made = make_repository(terminal.folder / "project")
    added = terminal("--json", "repo", "add", "./project", "--name", f"named-{terminal.folder.parent.name[-40:]}")
    assert (added.status, added.json["remote_url"]) == (0, str(made)), added
    missing = terminal("repo", "add", "./nowhere")
    assert (missing.status, str(terminal.folder / "nowhere") in missing.err) == (2, True), missing


def test_a_relative_path_is_refused_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That server has other folders; URLs and absolute paths are its own business."""
    make_repository(tmp_path / "project")
    monkeypatch.chdir(tmp_path)
    with _remote_backend("https://elsewhere.example") as backend:
        for relative in ("project", "./project", "../project"):
            with pytest.raises(InvalidInputError, match=r"the server at https://elsewhere\.example cannot"):
                remote_for(backend, relative)
        for remote in ("/srv/project", "~/project", "https://host/p.git", "git@host:p.git", "host:p", "file:///p"):
            assert remote_for(backend, remote) == remote
    with _remote_backend("http://localhost:8000") as backend:
        assert remote_for(backend, "project") == str(tmp_path / "project")
    assert LocalBackend.is_here
    assert [name_for(remote) for remote in (".", "./project/", "git@host:a/b.git")] == [tmp_path.name, "project", "b"]
