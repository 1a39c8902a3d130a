"""Packages come from where pip is told to look, with pip's meaning, unless uv has settings of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from debug_server.runner.environments.package_index import uv_variables
from tests.runner.environment_support import Recording, make_wheel, run_python
from tests.worktrees.places import make_remote

NO_SYSTEM_FILES = {"XDG_CONFIG_DIRS": "/nonexistent"}
Index = Callable[..., str]


class Quiet(SimpleHTTPRequestHandler):
    """Lists folders, which is what a simple index does."""

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """Makes package indexes on loopback with these versions of the package tiny."""
    servers: list[ThreadingHTTPServer] = []

    def make(*versions: str) -> str:
        folder = tmp_path / f"index{len(servers)}"
        for version in versions:
            make_wheel(folder / "simple/tiny", "tiny", version)
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/simple"

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def pip_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes the pip.conf of a user who has no other setting of pip or uv."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "XDG_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    (home / ".config/pip").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))

    def write(text: str) -> None:
        (home / ".config/pip/pip.conf").write_text(f"[global]\n{text}\n")

    return write


def ensure(tmp_path: Path, requirement: str, log: Recording | None = None) -> str:
    """Which version of tiny an environment with that line has."""
    manifest = tmp_path / "project/requirements.txt"
    manifest.parent.mkdir(exist_ok=True)
    manifest.write_text(f"{requirement}\n")
    request = EnvironmentRequest("tiny", [manifest])
    handle = EnvironmentManager(tmp_path / "envs").ensure(request, log=log)
    return run_python(handle, "import tiny; print(tiny.VERSION)")


def test_the_best_version_of_all_of_pips_indexes(tmp_path: Path, index: Index, pip_conf: Callable[[str], None]) -> None:
    """An older version in an additional index of pip's does not hide the pinned one in the other."""
    pip_conf(f"index-url = {index('1.0', '2.0')}\nextra-index-url =\n    {index('0.9')}\n    {index('1.0')}")
    assert ensure(tmp_path, "tiny==2.0") == "2.0"
    pip_conf(f"index-url = {index('1.0')}\nextra-index-url = {index('3.0')}")
    assert ensure(tmp_path, "tiny==3.0") == "3.0"


def test_settings_of_uv_are_left_alone(
    tmp_path: Path, index: Index, pip_conf: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an index of uv's, by a variable or in uv.toml, those of pip are not used."""
    pip_conf("index-url = http://127.0.0.1:9/simple")
    with monkeypatch.context() as patch:
        patch.setenv("UV_DEFAULT_INDEX", index("1.0"))
        assert ensure(tmp_path, "tiny==1.0") == "1.0"
    settings = Path(os.environ["HOME"]) / ".config/uv/uv.toml"
    settings.parent.mkdir()
    settings.write_text(f'[[index]]\nurl = "{index("2.0")}"\ndefault = true\n')
    assert ensure(tmp_path, "tiny==2.0") == "2.0"


def test_the_index_that_a_project_names_is_the_one_used(
    tmp_path: Path, index: Index, pip_conf: Callable[[str], None]
) -> None:
    """A requirements file's ``--index-url`` and a default index of ``[tool.uv]`` replace pip's, as they do for pip."""
    pip_conf("index-url = http://127.0.0.1:9/simple")
    assert ensure(tmp_path, f"--index-url {index('1.0')}\ntiny==1.0") == "1.0"
    project = tmp_path / "project/pyproject.toml"
    project.write_text(f'[[tool.uv.index]]\nurl = "{index("2.0")}"\ndefault = true\n')
    assert ensure(tmp_path, "tiny==2.0") == "2.0"


def test_a_failed_build_is_told_once(tmp_path: Path, index: Index, pip_conf: Callable[[str], None]) -> None:
    """``run`` shows the tool's words once, names the variables to set, and the error has the words, too."""
    pip_conf(f"index-url = {index('1.0')}")
    log = Recording()
    with pytest.raises(EnvironmentBuildError, match=r"(?s)UV_DEFAULT_INDEX.*No solution found"):
        ensure(tmp_path, "tiny==9.9", log)
    assert log.text.count("No solution found") == 1
    make_remote(tmp_path / "remote").commit({"requirements.txt": "tiny==9.9\n"})
    program = [sys.executable, "-m", "debug_server", "run", "--repo", str(tmp_path / "remote"), "--commit", "main"]
    command = [*program, "--manifest", "requirements.txt", "--", "true"]
    environ = {**os.environ, "DEBUG_SERVER_HOME": str(tmp_path / "none")}
    (tmp_path / ".artifacts").mkdir()
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert done.stderr.count("No solution found") == 1, done.stderr
    assert done.stderr.count("UV_DEFAULT_INDEX") == 1, done.stderr


def test_each_setting_of_place_reaches_uv(tmp_path: Path) -> None:
    """Files in pip's order, then variables; lists in the form uv reads; nothing that is set for uv is replaced."""
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".pip/pip.conf").write_text("[global]\nindex-url = a\ntrusted-host = one\n two\n[install]\ncert = c\n")
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text("[global]\nindex_url = b%20\n[install]\nfind-links = x ~/y\n")
    environ = {
        "HOME": str(tmp_path),
        **NO_SYSTEM_FILES,
        "PIP_EXTRA_INDEX_URL": "d e",
        "PIP_INDEX_URL": "",
        "PIP_CERT": "c",
    }
    found = uv_variables(environ)
    found["UV_FIND_LINKS"] = found["UV_FIND_LINKS"].partition(",")[0]  # the rest is the running user's own home
    assert found == {
        "UV_DEFAULT_INDEX": "b%20",
        "UV_INDEX": "d e",
        "UV_FIND_LINKS": "x",
        "UV_INSECURE_HOST": "one two",
        "SSL_CERT_FILE": "c",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert "UV_INDEX_STRATEGY" not in uv_variables({**environ, "UV_INDEX_STRATEGY": "first-index"})
    assert uv_variables({**environ, "UV_INDEX": "mine"}) == {"UV_INSECURE_HOST": "one two", "SSL_CERT_FILE": "c"}
    offline = uv_variables({**environ, "PIP_NO_INDEX": "yes"})
    assert offline["UV_NO_INDEX"] == "1" and "UV_INDEX" not in offline
    assert uv_variables({"HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}) == {}
