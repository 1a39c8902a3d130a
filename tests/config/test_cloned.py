"""A cloned repository chooses neither a shell nor a store for whoever stands in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from debug_server.config import load_runner
from debug_server.config.git_index import tracking_tree
from debug_server.errors import ConfigurationError
from tests.config.test_places import run

Environ = dict[str, str]


@pytest.fixture
def environ(tmp_path: Path) -> Environ:
    """A person's, with a home of their own."""
    return {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull}


def cloned(environ: Environ, origin: Path, files: dict[str, str], *settings: str) -> Path:
    """A clone of a repository with these files; a value ``-> x`` is a link."""
    subprocess.run(["git", "init", "-q", origin], env=environ, check=True)
    for name, text in files.items():
        path = origin / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text.removeprefix("-> "))
        else:
            path.write_text(text)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["add", "-f", "."], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-C", origin, *identity, *words], env=environ, check=True)
    clone = origin.parent / "clone"
    configured = [word for setting in settings for word in ("-c", setting)]
    subprocess.run(["git", *configured, "clone", "-q", origin, clone], env=environ, check=True)
    for setting in settings:
        subprocess.run(["git", "-C", clone, "config", *setting.split("=")], env=environ, check=True)
    subprocess.run(["git", "-C", clone, "update-index", "--force-write-index"], env=environ, check=True)
    return clone


@pytest.mark.parametrize("below", ["", "src/deep"], ids=["here", "above"])
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("[runner]\ndefault_shell = './trap.sh'\n", "may not set runner.default_shell: './trap.sh' is not in"),
        ("[runner]\ndefault_shell = '/proc/self/cwd/trap.sh'\n", "may not set runner.default_shell"),
        ("[paths]\nartifacts = '/tmp/elsewhere'\n", "may not set paths.artifacts: /tmp/elsewhere is outside"),
        ("[paths]\nlogs = '../../logs'\n", "may not set paths.logs"),
        ("[paths]\nartifacts = 'link/data'\n", "may not set paths.artifacts"),
        ("[paths]\nartifacts = 'src'\n", "has files that git tracks"),
        ("[workspaces]\ntrusted_repositories = ['/']\n", "may not set workspaces.trusted_repositories"),
    ],
    ids=["shell", "proc", "elsewhere", "logs", "link", "tracked", "trusted"],
)
def test_a_clone_chooses_no_shell_and_no_store(
    tmp_path: Path, environ: Environ, settings: str, said: str, below: str
) -> None:
    """What its settings choose is refused, in its folder and below it; nothing is written."""
    files = {"config/runner.toml": settings, "src/deep/x": "", "link": "-> /tmp"}
    clone = cloned(environ, tmp_path / "origin", files)
    with pytest.raises(ConfigurationError, match=r"git") as caught:
        load_runner(environ=environ, cwd=clone / below)
    assert said in str(caught.value)


@pytest.mark.parametrize("settings", ["", "[paths]\nartifacts = '.artifacts'\n"], ids=["none", "settings"])
def test_a_store_that_came_with_a_clone_is_not_used(tmp_path: Path, environ: Environ, settings: str) -> None:
    """A prepared database would bring commands of its own; the message says how to name another folder."""
    files = {".artifacts/data/metadata.db": "prepared", **({"config/runner.toml": settings} if settings else {})}
    clone = cloned(environ, tmp_path / "origin", files)
    done = run({**environ, "PYTHONPATH": os.fspath(Path(__file__).parents[2])}, clone, "run", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "") and "Traceback" not in done.stderr
    assert ".artifacts (paths.artifacts) has files that git tracks" in done.stderr
    named = environ | {"DEBUG_SERVER_PATHS_ARTIFACTS": str(tmp_path / "mine")}
    assert load_runner(environ=named, cwd=clone).data == tmp_path / "mine"


def test_ordinary_settings_of_a_clone_count(tmp_path: Path, environ: Environ) -> None:
    """A listed shell, limits and a new folder inside the repository are a project's to choose."""
    text = "[runner]\ndefault_shell = '/bin/sh'\n[paths]\nartifacts = 'out/data'\n[limits]\npids = 64\n"
    clone = cloned(environ, tmp_path / "origin", {"config/runner.toml": text})
    runner_config = load_runner(environ=environ, cwd=clone)
    assert (runner_config.data, runner_config.loaded.value.runner.default_shell) == (clone / "out/data", "/bin/sh")
    assert runner_config.loaded.value.limits.pids == 64


def test_what_the_user_says_counts(tmp_path: Path, environ: Environ) -> None:
    """A variable, a file that is named, and a file that git does not track choose anything."""
    text = "[runner]\ndefault_shell = './own.sh'\n"
    clone = cloned(environ, tmp_path / "origin", {"config/runner.toml": text})
    given = environ | {"DEBUG_SERVER_RUNNER_DEFAULT_SHELL": "./mine.sh"}
    assert load_runner(environ=given, cwd=clone).loaded.value.runner.default_shell == "./mine.sh"
    named = load_runner(clone / "config/runner.toml", environ=environ, cwd=clone)
    assert named.loaded.value.runner.default_shell == "./own.sh"
    subprocess.run(["git", "-C", clone, "rm", "-q", "--cached", "config/runner.toml"], env=environ, check=True)
    assert load_runner(environ=environ, cwd=clone).loaded.value.runner.default_shell == "./own.sh"


@pytest.mark.parametrize(
    ("hashes", "settings"),
    [("sha1", ()), ("sha256", ()), ("sha1", ("index.version=4",)), ("sha1", ("core.splitIndex=true",))],
    ids=["2", "sha256", "4", "split"],
)
def test_every_form_of_an_index_is_read(
    tmp_path: Path, environ: Environ, hashes: str, settings: tuple[str, ...]
) -> None:
    """Files, what is below a folder, and links on the way are found; neighbours with like names are not."""
    environ["GIT_DEFAULT_HASH"] = hashes
    names = ["a/b", "a.b", "config/runner.toml", "config/runners.yml", "z" * 200, "~"]
    clone = cloned(environ, tmp_path / "origin", dict.fromkeys(names, "x") | {"link": "-> a"}, *settings)
    for found in (*names, "a", "config", "link/b", "link"):
        assert tracking_tree(clone / found) == clone, found
    for missing in ("a/c", "b", "conf", "config/runner", "zz"):
        assert tracking_tree(clone / missing) is None, missing
    linked = tmp_path / "linked"
    subprocess.run(["git", "-C", clone, "worktree", "add", "-q", linked], env=environ, check=True)
    assert tracking_tree(linked / "a/b") == linked and tracking_tree(linked / "b") is None
    assert tracking_tree(tmp_path / "none") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("kind", ["pipe", "index", "sparse", "link"])
def test_another_user_s_git_above_means_nothing(tmp_path: Path, environ: Environ, kind: str) -> None:
    """It neither blocks, nor fills the memory, nor says that our files came with it."""
    clone = cloned(environ, tmp_path / "origin", {"a/b": "x"})
    shutil.move(clone / ".git", tmp_path / "theirs")
    entry = clone / ".git"
    if kind == "pipe":
        os.mkfifo(entry)
    elif kind == "link":
        entry.symlink_to(tmp_path / "theirs")
    else:
        shutil.move(tmp_path / "theirs", entry)
    if kind == "sparse":
        os.truncate(entry / "index", 200 << 30)
    os.chown(entry, 65534, 65534, follow_symlinks=False)
    assert tracking_tree(clone / "a" / "b") is None


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path: Path, environ: Environ) -> None:
    """A pipe in the place of an index is none; one that is too large is an error, because it may list the path."""
    clone = cloned(environ, tmp_path / "origin", {"a/b": "x"})
    index = clone / ".git" / "index"
    os.truncate(index, 200 << 30)
    with pytest.raises(ConfigurationError, match="index is larger than"):
        tracking_tree(clone / "a" / "b")
    index.unlink()
    os.mkfifo(index)
    assert tracking_tree(clone / "a" / "b") is None
