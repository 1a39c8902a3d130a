"""Where settings and data are found: the nearest folder of this user's, else the user's data folder."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from debug_server.config import find_config_location, load_runner, make_data_folder
from debug_server.config.load import read_table
from debug_server.config.places import user_data_folder
from debug_server.errors import ConfigurationError
from debug_server.runner import RunnerPaths, RunnerSettings
from debug_server.store import default_url, open_store
from tests.running import ROOT

OTHER = 65534


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A person's, with a home of their own."""
    home = tmp_path / "home"
    home.mkdir()
    return {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}


def run(environ: dict[str, str], cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program, to its end."""
    argv = [sys.executable, "-m", "debug_server", *words]
    return subprocess.run(argv, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_the_order(tmp_path: Path, environ: dict[str, str]) -> None:
    """A variable, then the settings file, then the nearest folder with data or settings, then the user's folder."""
    below = tmp_path / "project" / "src"
    below.mkdir(parents=True)
    assert load_runner(environ=environ, cwd=below).data == tmp_path / "home/.local/share/debug-server"
    assert load_runner(environ=environ | {"XDG_DATA_HOME": "/x"}, cwd=below).data == Path("/x/debug-server")
    (tmp_path / ".artifacts").mkdir()
    assert load_runner(environ=environ, cwd=below).data == tmp_path / ".artifacts"
    settings = tmp_path / "project" / "config" / "runner.toml"
    settings.parent.mkdir()
    settings.write_text("")
    runner_config = load_runner(environ=environ, cwd=below)
    assert runner_config.data == tmp_path / "project/.artifacts" and runner_config.location.files("runner.toml") == [
        settings
    ]
    settings.write_text('[paths]\nartifacts = "out"\nlogs = "/var/log/x"\n')
    paths = load_runner(environ=environ, cwd=below).loaded.value.paths
    assert (paths.artifacts, paths.logs) == (tmp_path / "project/out", Path("/var/log/x"))
    assert paths.patches == tmp_path / "project/out/patches"
    given = environ | {"DEBUG_SERVER_PATHS_ARTIFACTS": str(tmp_path / "given")}
    assert load_runner(environ=given, cwd=below).data == tmp_path / "given"


def test_relative_paths_of_another_file_begin_in_its_folder(tmp_path: Path, environ: dict[str, str]) -> None:
    """Neither a named file nor ``config/runner.toml`` means the working directory by a relative path."""
    for name, base in (("etc/my.toml", "etc"), ("etc/config/runner.toml", "etc")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('[paths]\nartifacts = "data"\n')
        assert load_runner(path, environ=environ, cwd=Path("/")).data == tmp_path / base / "data"
        assert RunnerSettings.from_toml(path).paths == RunnerPaths.from_root(tmp_path / base / "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_what_another_user_put_there_does_not_count(tmp_path: Path, environ: dict[str, str]) -> None:
    """Settings and data folders of another user choose nothing; those in the current directory are named."""
    here = tmp_path / "shared" / "mine"
    (tmp_path / "shared" / "config").mkdir(parents=True)
    (tmp_path / "shared" / ".artifacts").mkdir()
    hostile = tmp_path / "shared" / "config" / "runner.toml"
    hostile.write_text('[runner]\ndefault_shell = "/tmp/trap"\n')
    for path in (tmp_path / "shared" / ".artifacts", hostile):
        os.chown(path, OTHER, OTHER)
    here.mkdir()
    for cwd in (here, tmp_path / "shared"):
        runner_config = load_runner(environ=environ, cwd=cwd)
        assert runner_config.location.found is None and runner_config.loaded.value.runner.default_shell == "/bin/bash"
    done = run(environ, tmp_path / "shared", "run", "--quiet", "--", "true")
    assert f"{hostile} is ignored: it belongs to another user (uid {OTHER})" in done.stderr
    os.chown(hostile.parent, OTHER, OTHER)
    os.chown(hostile, 0, 0)  # in a folder where its owner can put another in its place
    assert find_config_location(environ=environ, cwd=here).found is None


def test_a_first_use_says_which_place_was_taken(tmp_path: Path, environ: dict[str, str]) -> None:
    """Each data folder is named at its first use, the user's own one too."""
    own = tmp_path / "home/.local/share/debug-server"
    first = run(environ, tmp_path, "run", "--quiet", "--", "true")
    assert (first.returncode, first.stderr) == (0, f"debug-server: using the data folder {own}\n")
    assert run(environ, tmp_path, "run", "--quiet", "--", "true").stderr == ""
    below = tmp_path / "project" / "src"
    below.mkdir(parents=True)
    (tmp_path / "project" / "config").mkdir()
    (tmp_path / "project" / "config" / "runner.toml").write_text("")
    first = run(environ, below, "run", "--quiet", "--", "true")
    second = run(environ, tmp_path / "project", "run", "--quiet", "--", "true")
    location = tmp_path / "project"
    assert first.stderr.splitlines() == [
        f"debug-server: using the data folder {location}/.artifacts and the settings {location}/config/runner.toml"
    ]
    assert (second.returncode, second.stderr) == (0, "")


def test_nothing_appears_in_the_current_directory(tmp_path: Path, environ: dict[str, str]) -> None:
    """Commands leave nothing where one stands, nor need to write there; their logs are found from anywhere."""
    here = tmp_path / "here"
    here.mkdir()
    here.chmod(0o555)
    assert run(environ, here, "run", "--quiet", "--", "echo", "found again").stdout == "found again\n"
    assert list(here.iterdir()) == []
    data = tmp_path / "home/.local/share/debug-server"
    assert (data / ".gitignore").read_text() == "*\n" and data.stat().st_mode & 0o777 == 0o700
    assert "found again" in run(environ, Path("/"), "session", "logs", "1").stdout


def test_git_ignores_a_data_folder(tmp_path: Path, environ: dict[str, str]) -> None:
    """A new data folder is invisible to git, whatever lies in it; a folder that was there is left as it is."""
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", repository], env=environ, check=True)
    make_data_folder(repository / ".artifacts")
    (repository / ".artifacts" / "seal.key").write_text("secret")
    (repository / "own").mkdir()
    make_data_folder(repository / "own")
    command = ["git", "-C", str(repository), "status", "--porcelain", "-uall"]
    status = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert status.stdout == "" and list((repository / "own").iterdir()) == []


def test_rows_of_earlier_versions_keep_their_files(tmp_path: Path, environ: dict[str, str]) -> None:
    """Paths relative to the old working directory become absolute when the store is opened."""
    data = tmp_path / ".artifacts"
    done = run(environ | {"DEBUG_SERVER_PATHS_ARTIFACTS": str(data)}, tmp_path, "run", "--", "echo", "old")
    assert done.returncode == 0
    with open_store(default_url({}, data)) as store:
        path = store.commands.get(1).log_path or ""
        relative = os.path.relpath(path, tmp_path)
        with store._database.write() as transaction:  # as an earlier version wrote it
            transaction.run("UPDATE commands SET log_path = ?", (relative,))
            transaction.run("UPDATE artifacts SET path = ?", (relative,))
        store.data_folder.make_paths_absolute(data)
        assert store.commands.get(1).log_path == path
        assert [item.path for item in store.artifacts.in_session(1)] == [path]


def test_without_a_home_the_message_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder that is named needs no home."""

    def no_account(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", no_account)
    assert user_data_folder({}) is None
    with pytest.raises(ConfigurationError, match="DEBUG_SERVER_PATHS_ARTIFACTS"):
        load_runner(environ={}, cwd=tmp_path)
    assert load_runner(environ={"DEBUG_SERVER_PATHS_ARTIFACTS": "/x"}, cwd=tmp_path).data == Path("/x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_settings_that_appear_after_the_search_are_judged_again(tmp_path: Path, environ: dict[str, str]) -> None:
    """Beside a data folder of ours in a shared folder, another user moves settings in and out."""
    tmp_path.chmod(0o1777)
    (tmp_path / ".artifacts").mkdir(mode=0o700)
    location = find_config_location(environ=environ, cwd=tmp_path)
    (tmp_path / "config").mkdir()
    theirs = tmp_path / "config" / "runner.toml"
    theirs.write_text('[runner]\ndefault_shell = "/tmp/trap"\n')
    for path in (theirs.parent, theirs):
        os.chown(path, OTHER, OTHER)
    assert location.found == tmp_path and location.files("runner.toml") == []
    with pytest.raises(ConfigurationError, match=f"not used: .*uid {OTHER}"):
        read_table(theirs)  # between the judgement and the use


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_named_file_may_be_of_another_user(tmp_path: Path, environ: dict[str, str]) -> None:
    """``--config`` of another user's checkout: its owner is trusted; not if third users may write to it."""
    named = tmp_path / "checkout" / "config" / "runner.toml"
    named.parent.mkdir(parents=True)
    named.write_text('[runner]\ndefault_shell = "/bin/theirs"\n')
    for path in (named, *named.parents[:2]):
        os.chown(path, OTHER, OTHER)
    runner_config = load_runner(named, environ=environ, cwd=tmp_path)
    assert runner_config.loaded.value.runner.default_shell == "/bin/theirs"
    named.chmod(0o666)
    with pytest.raises(
        ConfigurationError, match=f"{named} is not used: other users may write to it .*chmod go-w {named}"
    ):
        load_runner(named, environ=environ, cwd=tmp_path)


def test_a_data_folder_that_cannot_be_used(tmp_path: Path, environ: dict[str, str]) -> None:
    """What stands in its place, and a file system that takes no folder, are told in one line with what to set."""
    (tmp_path / "file").write_text("")
    for path, reason in (
        (tmp_path / "file", "not a folder"),
        (Path("/proc/none"), "No such file"),
        ("/dev/null", "not"),
    ):
        given = environ | {"DEBUG_SERVER_PATHS_ARTIFACTS": str(path)}
        for command in (["run", "--", "true"], ["doctor"]):
            done = run(given, tmp_path, *command)
            said = done.stdout + done.stderr
            assert done.returncode != 0 and "Traceback" not in said and "chmod" not in said
            assert f"the data folder {path} cannot be used: " in said and reason in said
            assert "set DEBUG_SERVER_PATHS_ARTIFACTS to another folder" in said


@pytest.mark.parametrize("home", ["", "relative"])
def test_a_home_that_is_no_absolute_path_is_that_of_the_account(home: str) -> None:
    """Neither the root folder nor the current one gets a data folder."""
    expected = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".local/share/debug-server"
    assert user_data_folder({"HOME": home}) == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_closed_folder_of_root_is_passed_over() -> None:
    """Where root keeps data that this user may not read, this user's own data folder is used, and a line says so."""
    with tempfile.TemporaryDirectory() as name:  # not below pytest's folders, which others may not enter
        here = Path(name)
        here.chmod(0o755)
        (here / ".artifacts").mkdir(mode=0o700)
        os.seteuid(OTHER)
        try:
            location = find_config_location(environ={"HOME": "/nowhere"}, cwd=here)
        finally:
            os.seteuid(0)
    assert location.found is None and location.data == Path("/nowhere/.local/share/debug-server")
    assert location.ignored == ((here / ".artifacts", "this user may not read and write it"),)


def test_what_would_be_ignored_in_silence_is_reported(tmp_path: Path) -> None:
    """A misspelt variable with the right name, and a folder where a settings file should be; others' names are not."""
    (tmp_path / "config" / "runner.toml").mkdir(parents=True)
    environ = {
        "HOME": str(tmp_path),
        "DEBUG_SERVER_LIMIT_MEMORY": "1G",
        "DEBUG_SERVER_TOKN": "t",
        "DEBUG_SERVER_X": "1",
    }
    notes = load_runner(environ=environ, cwd=tmp_path).notes(environ)
    assert "DEBUG_SERVER_LIMIT_MEMORY is ignored: did you mean DEBUG_SERVER_LIMITS_MEMORY?" in notes
    assert "DEBUG_SERVER_TOKN is ignored: did you mean DEBUG_SERVER_TOKEN?" in notes
    assert f"{tmp_path / 'config' / 'runner.toml'} is ignored: it is a folder, not a file" in notes
    assert not any("DEBUG_SERVER_X " in note for note in notes)
