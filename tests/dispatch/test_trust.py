"""Events, schedules and runner programs come only from files that nobody else can have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from debug_server.config import find_config_location
from debug_server.dispatch.configuration import LiveConfiguration
from debug_server.dispatch.examples import ensure_configuration
from debug_server.dispatch.folder import configuration_folder, load_dispatch
from debug_server.dispatch.programs import find_program
from debug_server.errors import ConfigurationError

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
REPOS = "repos: {home: {local_path: '~'}}\n"
RUNNERS = """
runners:
  hers: {executor: bash, cmd: hers.sh, skills: [go], repos: all}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with both files and a runner program."""
    root = tmp_path / "project"
    for folder in (root, root / "config", root / "runners"):
        folder.mkdir(mode=0o755)
    (root / "config" / "runners.yml").write_text(RUNNERS)
    (root / "config" / "repos.yml").write_text(REPOS)
    (root / "runners" / "hers.sh").write_text("exit 0\n")
    return root


def give_away(*paths: Path) -> None:
    """To another user."""
    for path in paths:
        os.chown(path, OTHER, OTHER)


@as_root
@pytest.mark.parametrize("given", ["", "config", "config/runners.yml"])
def test_a_folder_of_another_user_brings_no_runners(project: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does one in which only a part is theirs."""
    monkeypatch.chdir(project)
    place = find_config_location(environ={})
    assert load_dispatch(place)[1].is_used
    give_away(project / given)
    place = find_config_location(environ={})
    assert place.found is None or given == "config/runners.yml"
    assert not load_dispatch(place)[1].is_used and project / "config/runners.yml" in dict(place.ignored)


@as_root
def test_a_folder_that_a_variable_names_may_be_of_another_user(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner is trusted then, and nobody else."""
    give_away(project, *project.rglob("*"))
    monkeypatch.setenv("DEBUG_SERVER_DISPATCH_CONFIG", str(project / "config"))
    folder = configuration_folder()
    live = LiveConfiguration(folder.path, trusted_uids=folder.trusted_uids)
    assert folder.is_used and list(live.current().runners.runners) == ["hers"]
    os.chown(project / "config" / "repos.yml", OTHER - 1, OTHER)
    with pytest.raises(ConfigurationError, match=f"repos.yml is not used: .*uid {OTHER - 1}"):
        LiveConfiguration(folder.path, trusted_uids=folder.trusted_uids)


@as_root
def test_a_file_that_another_user_puts_in_place_is_not_reloaded(project: Path) -> None:
    """The configuration before stays in force, and the reason is kept for the operator."""
    live = LiveConfiguration(project / "config")
    path = project / "config" / "runners.yml"
    path.write_text(RUNNERS.replace("hers:", "theirs:"))
    give_away(path)
    assert list(live.current().runners.runners) == ["hers"]
    assert f"{path} is not used: it belongs to another user (uid {OTHER})" in str(live.problem)


@as_root
@pytest.mark.parametrize("given", ["runners", "runners/hers.sh"])
def test_a_runner_program_of_another_user_is_not_started(project: Path, tmp_path: Path, given: str) -> None:
    """What was ours when the configuration was read may be theirs when the event comes."""
    configuration = LiveConfiguration(project / "config").current()
    runner = configuration.runners.runners["hers"]
    program = find_program(runner, tmp_path, project, "/bin/bash", trusted_uids=configuration.trusted_uids)
    assert program is not None and program.argv == ("/bin/bash", str(project / "runners/hers.sh"))
    give_away(project / given)
    with pytest.raises(ConfigurationError, match=f"hers.sh is not used: .*uid {OTHER}"):
        find_program(runner, tmp_path, project, "/bin/bash", trusted_uids=configuration.trusted_uids)


def test_the_shipped_files_are_not_written_through_links(tmp_path: Path) -> None:
    """A dangling link in the folder leads nowhere."""
    folder, elsewhere = tmp_path / "config", tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "runners.yml").symlink_to(elsewhere)
    with pytest.raises(ConfigurationError, match=f"{folder} cannot be written: File exists"):
        ensure_configuration(folder)
    assert not elsewhere.exists()


@as_root
def test_the_shipped_files_are_not_written_into_a_folder_of_another_user(tmp_path: Path) -> None:
    """Whoever owns it could exchange them."""
    give_away(tmp_path)
    with pytest.raises(ConfigurationError, match=f"uid {OTHER}"):
        ensure_configuration(tmp_path / "config")
