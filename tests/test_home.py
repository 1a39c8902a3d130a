"""The home folder of a test run: nothing of the user's is seen, and whatever reads a trap is found out."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.home import DEAD, ROOT, left_marks, private_environment, set_traps


def test_nothing_of_the_user_is_left_but_the_way_to_the_indexes(tmp_path: Path) -> None:
    """Settings and credentials go; what pip, uv and npm say of indexes, and certificates, become variables."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    (theirs / ".config/pip").mkdir(parents=True)
    (theirs / ".config/pip/pip.conf").write_text("[global]\nindex-url = file:///one\nextra-index-url = file:///two\n")
    (theirs / ".npmrc").write_text("registry = file:///npm\n//somewhere/:_authToken=secret\n")
    (theirs / ".pyenv").mkdir()
    gone = (
        "DEBUG_SERVER_TOKEN",
        "XDG_CONFIG_HOME",
        "GIT_DIR",
        "CODEX_HOME",
        "PROXY_API_KEY",
        "WORKER_X",
        "DATABASE_URL",
    )
    kept = {"PATH": "/bin", "SSL_CERT_FILE": "/c", "GIT_SSL_CAINFO": "/c", "HTTPS_PROXY": "http://p", "NO_PROXY": "x"}
    found = private_environment({**dict.fromkeys(gone, ""), **kept, "HOME": str(theirs)}, ours)
    assert not set(gone) & set(found)
    assert found["HOME"] == str(ours) and found["PYENV_ROOT"] == str(theirs / ".pyenv")
    assert {name: found[name] for name in kept} == {**kept, "NO_PROXY": "x,127.0.0.1,localhost,::1"}
    assert (found["UV_DEFAULT_INDEX"], found["UV_INDEX"]) == ("file:///one", "file:///two")
    assert found["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert (found["PIP_INDEX_URL"], found["npm_config_registry"]) == ("file:///one", "file:///npm")
    assert "secret" not in str(found)


def test_the_home_of_a_killed_run_goes_with_the_next(tmp_path: Path) -> None:
    """The next run removes it; that of a run that lives, and a folder that merely has such a name, stay."""
    program = "import sys; from tests.home import enter_private_home; print(enter_private_home(), flush=True); input()"
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    argv = [sys.executable, "-c", program]
    unknown = tmp_path / "debug-server-test-home-unknown"
    unknown.mkdir()
    with ExitStack() as stack:
        homes = []
        for killed in (True, False, False):
            process = stack.enter_context(
                subprocess.Popen(
                    argv,
                    cwd=ROOT,
                    env={**environ, "TMPDIR": str(tmp_path)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            homes.append(Path(process.stdout.readline().strip()))
            assert homes[-1].parent == tmp_path
            if killed:
                process.kill()
                process.wait()
        assert [home.exists() for home in homes] == [False, True, True]
        assert unknown.exists()


def test_uvs_own_file_is_turned_into_variables(tmp_path: Path) -> None:
    """Indexes of uv.toml stay in use, and pip's are then not uv's."""
    (tmp_path / ".config/uv").mkdir(parents=True)
    (tmp_path / ".config/uv/uv.toml").write_text(
        '[[index]]\nurl = "file:///a"\ndefault = true\n[[index]]\nurl = "file:///b"\n'
    )
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": "/nonexistent", "PIP_EXTRA_INDEX_URL": "file:///p"}
    found = private_environment(environ, tmp_path / "ours")
    assert (found["UV_DEFAULT_INDEX"], found["UV_INDEX"]) == ("file:///a", "file:///b")
    assert found["PIP_EXTRA_INDEX_URL"] == "file:///p"


@pytest.mark.parametrize(
    ("command", "mark"),
    [
        (["git", "init", "-q", "new"], "git-reference-transaction"),
        (["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", "x"], "git-program"),
        (["bash", "-lc", "true"], ".bash_profile"),
        ([getattr(sys, "_base_executable", sys.executable), "-c", "pass"], "usercustomize"),
    ],
    ids=["hooks", "gpg", "profile", "usercustomize"],
)
def test_a_trap_leaves_a_mark(tmp_path: Path, command: list[str], mark: str) -> None:
    """Whoever uses the user's settings is named."""
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    set_traps(home)
    assert left_marks(home) == {}
    plain = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", "init", "-q"], cwd=folder, env=plain, check=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    subprocess.run(command, cwd=folder, env=environ, check=False, capture_output=True)
    if mark == "git-reference-transaction":  # by the first reference, with the hooks of the template or of hooksPath
        subprocess.run(["git", "update-ref", "refs/x", _empty_tree(folder)], cwd=folder, env=environ, check=False)
    assert Path(command[0]).name in left_marks(home)[mark] or mark.startswith("git-")


def _empty_tree(folder: Path) -> str:
    command = ["git", "hash-object", "-t", "tree", "-w", "/dev/null"]
    return subprocess.check_output(command, cwd=folder, text=True).strip()


def test_this_very_run_is_in_such_a_home() -> None:
    """The suite's normal run has the traps."""
    home = Path(os.environ["HOME"])
    assert DEAD in (home / ".debug-server/config.toml").read_text()
    assert (home / ".local/share/debug-server").is_file()
