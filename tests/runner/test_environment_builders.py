"""The builders of environments and the interpreters they use."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import uv

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from tests.runner.environment_support import (
    Recording,
    ended,
    environments,
    hook,
    make_wheel,
    requirements,
    run_python,
    wait_for,
)

PROJECT = """
[project]
name = "project-under-test"
version = "1.0"
requires-python = ">=3.9"
dependencies = ["tinya"]
[project.optional-dependencies]
more = ["tinyb"]
[dependency-groups]
test = [{include-group = "base"}]
base = ["tinyc"]
[build-system]
requires = ["no-such-backend"]
build-backend = "no_such_backend"
"""


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """tinya, tinyb and tinyc in a folder that is the only index."""
    for name in ("tinya", "tinyb", "tinyc"):
        make_wheel(tmp_path / "wheels", name, "1.0")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "wheels"


@pytest.fixture
def manager(tmp_path: Path) -> EnvironmentManager:
    """A manager of its own."""
    return EnvironmentManager(tmp_path / "envs")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose build backend does not exist: whoever tries to install it fails."""
    folder = tmp_path / "project"
    (folder / "src" / "project_under_test").mkdir(parents=True)
    (folder / "src" / "project_under_test" / "__init__.py").write_text("")
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


def _packages(manager: EnvironmentManager, request: EnvironmentRequest) -> tuple[str, ...]:
    report = manager.ensure(request).build
    assert report is not None
    return report.packages


def test_project_file_without_lock(project: Path, manager: EnvironmentManager) -> None:
    """pyproject.toml gives its dependencies, with the extras and groups asked for, and never the project itself."""
    manifests = [project / "pyproject.toml"]
    assert _packages(manager, EnvironmentRequest("a", manifests)) == ("tinya==1.0",)
    full = EnvironmentRequest("b", manifests, extras=["more"], groups=["test"])
    assert _packages(manager, full) == ("tinya==1.0", "tinyb==1.0", "tinyc==1.0")


def test_project_file_with_lock(project: Path, wheels: Path, manager: EnvironmentManager) -> None:
    """uv.lock beside pyproject.toml is installed as it stands, even when newer versions exist."""
    subprocess.run([uv.find_uv_bin(), "lock", "--quiet", "--python", sys.executable], cwd=project, check=True)
    make_wheel(wheels, "tinya", "2.0")
    lock = (project / "uv.lock").read_bytes()
    before = sorted(project.rglob("*"))
    request = EnvironmentRequest("a", [project / "pyproject.toml"], extras=["more"])
    assert _packages(manager, request) == ("tinya==1.0", "tinyb==1.0")
    named = EnvironmentRequest("b", [project / "uv.lock"], groups=["test"])
    assert _packages(manager, named) == ("tinya==1.0", "tinyc==1.0")
    assert sorted(project.rglob("*")) == before
    assert (project / "uv.lock").read_bytes() == lock


def test_local_project_in_requirements(tmp_path: Path, manager: EnvironmentManager, wheels: Path) -> None:
    """``-e .[extra]`` brings the project's dependencies, not the project; other lines stay as they are."""
    make_wheel(wheels, "tinybackend", "1.0", _BACKEND)
    folder = tmp_path / "local"
    folder.mkdir()
    text = PROJECT.replace('"no-such-backend"', '"tinybackend"').replace("no_such_backend", "tinybackend")
    (folder / "pyproject.toml").write_text(text)
    (folder / "requirements.txt").write_text("-e .[more]\ntinyc\n")
    handle = manager.ensure(EnvironmentRequest("local", [folder / "requirements.txt"]))
    assert handle.build is not None
    assert handle.build.packages == ("tinya==1.0", "tinyb==1.0", "tinyc==1.0")
    assert str(folder) not in run_python(handle, "import sys; print(sys.path)")
    (folder / "pyproject.toml").write_text(text.replace('["tinyb"]', "[]"))
    assert _packages(manager, EnvironmentRequest("local", [folder / "requirements.txt"])) == (
        "tinya==1.0",
        "tinyc==1.0",
    )


@pytest.mark.parametrize("known", ["default", "chosen"])
def test_cache_of_uv_is_closed(
    tmp_path: Path, manager: EnvironmentManager, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other users cannot reach the lock in uv's cache, which is open to everybody; a chosen folder stays as it is."""
    monkeypatch.delenv("UV_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "uv"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    if known == "chosen":
        monkeypatch.setenv("UV_CACHE_DIR", str(folder))
    manifest = requirements(tmp_path / "requirements.txt", tmp_path / "wheels", "tinya")
    assert _packages(manager, EnvironmentRequest("a", [manifest])) == ("tinya==1.0",)
    assert (folder / ".lock").exists()
    assert stat.S_IMODE(folder.stat().st_mode) == (0o700 if known == "default" else 0o755)


_BACKEND = """
def build_editable(*args, **kwargs): raise SystemExit("the project itself must not be built")
build_wheel = build_editable
"""


# Stands in for setuptools: a build that runs setup.py, and leaves a folder beside it as the real one does.
_SETUPTOOLS = """
import os, pathlib, sys
__legacy__ = sys.modules[__name__]
def setup(install_requires=(), **_):
    __legacy__.needs = install_requires
sys.modules["setuptools"].setup = setup
def get_requires_for_build_wheel(config_settings=None):
    return []
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    os.makedirs("p.egg-info", exist_ok=True)
    exec(compile(open("setup.py").read(), "setup.py", "exec"), {"__file__": "setup.py", "__name__": "__main__"})
    info = pathlib.Path(folder, "p-1.dist-info")
    info.mkdir()
    lines = "".join(f"Requires-Dist: {item}\\n" for item in needs)
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: p\\nVersion: 1\\n" + lines)
    return info.name
get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
"""
_READING = """
from setuptools import setup
setup(name="p", version="1", install_requires=open("reqs/base.txt").read().split())
"""


@pytest.mark.parametrize("manifest", ["setup.py", "requirements.txt"])
def test_requirements_that_a_build_reads(
    tmp_path: Path, manager: EnvironmentManager, wheels: Path, manifest: str
) -> None:
    """What setup.py reads from another file counts, in the same folder too, and the build leaves nothing there."""
    more = {"setuptools/__init__.py": "", "setuptools/build_meta.py": _SETUPTOOLS}
    make_wheel(wheels, "setuptools", "99.0", more=more)
    make_wheel(wheels, "wheel", "99.0")
    project = tmp_path / "reading"
    (project / "reqs").mkdir(parents=True)
    (project / "setup.py").write_text(_READING)
    (project / "requirements.txt").write_text("-e .\n")
    request = EnvironmentRequest("r", [project / manifest], project_root=project)
    for needs in ("tinya", "tinyb", "tinyb tinyc"):
        (project / "reqs/base.txt").write_text(f"{needs}\n")
        assert _packages(manager, request) == tuple(f"{name}==1.0" for name in needs.split())
        before = manager.plan_fingerprint(request)
        (project / "__pycache__").mkdir(exist_ok=True)
        assert manager.plan_fingerprint(request) == before
    assert not (project / "p.egg-info").exists()


def test_standard_library_builder(tmp_path: Path, project: Path, manager: EnvironmentManager) -> None:
    """venv and pip give the same kind of environment from requirements and project files."""
    manifest = requirements(tmp_path / "project/requirements.txt", tmp_path / "wheels", "tinyc")
    metadata = {"builder": "venv"}
    request = EnvironmentRequest("v", [manifest, project / "pyproject.toml"], metadata, extras=["more"])
    handle = manager.ensure(request)
    assert run_python(handle, "import tinya, tinyb, tinyc, sys; print(sys.prefix)") == str(handle.path)
    assert manager.verify(handle.fingerprint or "") == {}
    with pytest.raises(EnvironmentBuildError, match="named 'nope'"):
        manager.ensure(EnvironmentRequest("v", [project / "pyproject.toml"], metadata, groups=["nope"]))


def test_hook_fills_the_folder(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A hook gets the folder, the interpreter and the manifests, and what it leaves there is the environment."""
    manifest = tmp_path / "deps.custom"
    manifest.write_text("anything\n")
    command = (
        'mkdir "$DEBUG_SERVER_ENV_PATH/bin" && ln -s "$DEBUG_SERVER_ENV_PYTHON" "$DEBUG_SERVER_ENV_PATH/bin/python"'
        ' && cp "$DEBUG_SERVER_ENV_MANIFESTS" "$DEBUG_SERVER_ENV_PATH/copy"'
    )
    handle = manager.ensure(EnvironmentRequest("h", [manifest], {"hook": command}))
    assert (handle.path / "copy").read_text() == "anything\n"
    assert run_python(handle, "print(40 + 2)") == "42"


def test_hook_is_told_no_secrets(tmp_path: Path, manager: EnvironmentManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool sees proxies and index settings, but neither our secrets nor our Python's paths."""
    kept = {"HTTPS_PROXY": "http://proxy.invalid", "no_proxy": "localhost", "UV_INDEX_URL": "x", "PIP_INDEX_URL": "y"}
    gone = {"DEBUG_SERVER_DB_URL": "s", "API_TOKEN": "s", "PYTHONPATH": "/s", "PYTHONHOME_": "s", "VIRTUAL_ENV": "/s"}
    gone["UV_PROJECT_ENVIRONMENT"] = "/s"
    for name, value in (kept | gone).items():
        monkeypatch.setenv(name, value)
    handle = manager.ensure(hook('env > "$DEBUG_SERVER_ENV_PATH/seen"', root=tmp_path))
    seen = dict(line.split("=", 1) for line in (handle.path / "seen").read_text().splitlines() if "=" in line)
    assert kept.items() <= seen.items()
    assert not gone.keys() & seen.keys()


def test_tool_that_hangs_is_killed_with_its_children(tmp_path: Path, manager: EnvironmentManager) -> None:
    """At the deadline all processes of the tool end, those in other sessions too; the error says what it said last."""
    command = (
        f"echo working; sleep 600 & echo $! > {tmp_path}/child;"
        f" setsid sh -c 'echo $$ > {tmp_path}/escaped; exec sleep 600' & wait"
    )
    for seconds in (6.0, 60.0):
        with pytest.raises(EnvironmentBuildError) as caught:
            EnvironmentManager(manager.root, build_timeout=seconds).ensure(hook(command, root=tmp_path))
        if (tmp_path / "escaped").exists():  # else the machine was too slow for the first deadline
            break
    assert re.search(r"(?s)did not end before the deadline.*working", str(caught.value))
    assert ended(int(wait_for(tmp_path / "child")))
    assert ended(int(wait_for(tmp_path / "escaped")))
    assert environments(manager) == []


def test_background_child_does_not_hold_the_build_up(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A child that keeps the output open is not waited for, and does not outlive the build."""
    handle = manager.ensure(hook(f"sleep 600 & echo $! > {tmp_path}/pid", root=tmp_path))
    assert handle.build is not None
    assert handle.build.seconds < 30
    assert ended(int(wait_for(tmp_path / "pid")))


def test_output_is_whole_text(tmp_path: Path, manager: EnvironmentManager) -> None:
    """Characters split between two reads arrive whole; bytes that are no text are replaced."""
    log = Recording()
    manager.ensure(hook(r"printf 'gr\303'; sleep 0.2; printf '\274n \377\n'", root=tmp_path), log=log)
    assert "grün \ufffd\n" in log.text


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"builder": "nix"}, "does not exist: use one of uv, venv"),
        ({"builder": "hook"}, "needs its command"),
        ({"python": "3.99"}, r"no Python 3\.99 is installed; there is: .*\d+\.\d+\.\d+ \(/"),
        ({"python": "three"}, "is not understood"),
        ({"python": "/bin/false"}, "not an interpreter"),
    ],
)
def test_wrong_metadata(manager: EnvironmentManager, metadata: dict[str, str], message: str) -> None:
    """A wrong builder or interpreter is refused with what would be right."""
    with pytest.raises(EnvironmentBuildError, match=message):
        manager.ensure(EnvironmentRequest("w", None, metadata))


def test_unknown_manifest_kind(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A manifest that no builder reads is refused, naming those that can be read."""
    (tmp_path / "deps.nix").write_text("x")
    with pytest.raises(EnvironmentBuildError, match=r"deps\.nix.*requirements\*\.txt"):
        manager.ensure(EnvironmentRequest("w", [tmp_path / "deps.nix"]))


@pytest.mark.parametrize(
    ("name", "instead"),
    [("pixi.toml", "pixi workspace export"), ("poetry.lock", "pyproject.toml"), ("tox.ini", "leave manifests out")],
)
def test_what_to_name_instead(tmp_path: Path, manager: EnvironmentManager, name: str, instead: str) -> None:
    """Files of well-known tools are refused with the line that works."""
    (tmp_path / name).write_text("x")
    with pytest.raises(EnvironmentBuildError, match=instead):
        manager.ensure(EnvironmentRequest("w", [tmp_path / name]))


def test_other_interpreter(manager: EnvironmentManager) -> None:
    """A version that is installed beside ours is used, by its real path and never through a shim."""
    mine = sys.version_info[:2]
    others = [item for item in manager.interpreters() if (3, 8) <= _minor(item.version) != mine]
    if not others:
        pytest.skip("only one Python is installed")
    wanted = ".".join(map(str, _minor(others[-1].version)))
    handle = manager.ensure(EnvironmentRequest("o", None, {"python": wanted}))
    version = run_python(handle, "import sys; print('%d.%d' % sys.version_info[:2])")
    assert version == wanted
    assert "shims" not in os.path.realpath(handle.python_path)
    by_path = manager.ensure(EnvironmentRequest("o", None, {"python": others[-1].path}))
    assert by_path.python_path.resolve() == handle.python_path.resolve()


def _minor(version: str) -> tuple[int, int]:
    major, minor, _ = version.split(".")
    return int(major), int(minor)


def test_shim_is_resolved(tmp_path: Path, manager: EnvironmentManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shim on the search path leads to the real interpreter behind it."""
    shim = tmp_path / "shims" / "python"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    handle = manager.ensure(EnvironmentRequest("s", None, {"python": str(shim)}))
    assert os.path.realpath(handle.python_path) == os.path.realpath(sys.executable)


def test_parts_need_their_project(project: Path, wheels: Path, manager: EnvironmentManager) -> None:
    """An extra or a group without the file that defines it is refused, not left out."""
    manifest = requirements(project / "requirements.txt", wheels, "tinya")
    for extras, groups in ((["more"], []), ([], ["test"])):
        with pytest.raises(EnvironmentBuildError, match=r"needs the pyproject\.toml that defines it"):
            manager.ensure(EnvironmentRequest("a", [manifest], extras=extras, groups=groups))
