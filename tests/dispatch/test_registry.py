"""Changes of ``repos.yml``: comments are kept, invalid changes refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from debug_server.dispatch.configuration import LiveConfiguration
from debug_server.dispatch.registry import RepoRegistry
from debug_server.dispatch.repos_file import Repo
from debug_server.errors import ConflictError, InvalidInputError, NotFoundError
from debug_server.worktrees.repository_trust import Trust

RUNNER = "runners:\n  a:\n    executor: bash\n    cmd: a.sh\n    skills: [one]\n    repos: all\n"
REPOS = "repos:\n  here:\n    local_path: here\n"


def _folder(tmp_path: Path, runners: str = RUNNER, repos: str = REPOS) -> Path:
    folder = tmp_path / "config"
    folder.mkdir(exist_ok=True)
    (folder / "runners.yml").write_text(runners)
    (folder / "repos.yml").write_text(repos)
    return folder


@pytest.mark.parametrize("there", ["there:\n    local_path: there\n    branch: *one\n", "there: *all\n"])
def test_an_alias_is_not_changed_for_everybody(tmp_path: Path, there: str) -> None:
    """A value that is written in another repository's entry is refused, not changed over there."""
    text = f"repos:\n  here: &all\n    local_path: here\n    branch: &one main\n  {there}"
    folder = _folder(tmp_path, repos=text)
    with pytest.raises(ConflictError, match="alias"):
        RepoRegistry(LiveConfiguration(folder), Trust().check_folder).update("there", {"branch": "next"})
    assert (folder / "repos.yml").read_text() == text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_user_s_folder_is_not_registered(tmp_path: Path) -> None:
    """Adding or updating refuses at once what every use would refuse; the file stays as it was."""
    text = "repos:\n  here:\n    local_path: here\n"
    folder = _folder(tmp_path, repos=text)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    registry = RepoRegistry(LiveConfiguration(folder), Trust().check_folder)
    with pytest.raises(InvalidInputError, match="trusted_repositories"):
        registry.add(Repo(name="theirs", local_path=str(theirs)))
    with pytest.raises(InvalidInputError, match="trusted_repositories"):
        registry.update("here", {"local_path": "theirs"})
    assert (folder / "repos.yml").read_text() == text
    RepoRegistry(LiveConfiguration(folder), Trust(listed=("65534",)).check_folder).update(
        "here", {"local_path": "theirs"}
    )


def test_the_registry_keeps_what_people_wrote(tmp_path: Path) -> None:
    """Adding and updating leave comments and order; nonsense is refused and leaves the file as it was."""
    text = "# mine\nrepos:\n  here:  # first\n    local_path: here\n    status: active  # for now\n\n# the end\n"
    registry = RepoRegistry(LiveConfiguration(_folder(tmp_path, repos=text)), Trust().check_folder)
    registry.update("here", {"status": "local-only", "role": "probe"})
    registry.add(Repo(name="there", local_path="there", branch="trunk"))
    written = (tmp_path / "config/repos.yml").read_text()
    assert [word in written for word in ("# mine", "# first", "# for now", "# the end")] == [True] * 4
    assert [repo.name for repo in registry.list_repos()] == ["here", "there"]
    assert [repo.local_path for repo in registry.list_repos()] == [str(tmp_path / "here"), str(tmp_path / "there")]
    registry.update("there", {"local_path": registry.get("there").local_path})
    assert (tmp_path / "config/repos.yml").read_text() == written, "an answer that comes back changes nothing"
    assert (registry.get("here").status, registry.get("here").role) == ("local-only", "probe")
    assert [repo.name for repo in registry.list_repos("local-only")] == ["here"]
    with pytest.raises(ConflictError, match="there"):
        registry.add(Repo(name="there", local_path="x"))
    for wrong in ({"colour": "red"}, {"local_path": "../x"}, {"role": "a\nb: c"}):
        with pytest.raises(InvalidInputError):
            registry.update("here", wrong)
    with pytest.raises(NotFoundError):
        registry.update("nowhere", {"role": "x"})
    assert (tmp_path / "config/repos.yml").read_text() == written
