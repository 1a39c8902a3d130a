"""What lies above a workspace has no say in what is installed there."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from pathlib import Path

import pytest

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.cancellation import Cancellation
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.build_plan import make_plan
from debug_server.runner.environments.interpreters import Interpreters
from debug_server.runner.environments.manifests import read_manifests
from debug_server.runner.environments.package_index import chosen_sources, settings_variables
from debug_server.runner.environments.probes import ProbeCache
from debug_server.runner.environments.project_copy import safe_project_folder
from debug_server.runner.environments.uv_builder import UvBuilder, find_uv
from tests.runner.environment_support import make_wheel, run_python

OTHER = 65534
EVIL = """
from pathlib import Path
def build_wheel(*_): Path(r"{mark}").touch(); raise SystemExit("stopped here")
build_sdist = prepare_metadata_for_build_wheel = get_requires_for_build_wheel = lambda *_: build_wheel()
"""


class Silent:
    """A log that keeps nothing."""

    def write(self, text: str, stream: str = "system") -> None:
        """Drop it."""


def trap(folder: Path, name: str) -> Path:
    """A project whose build backend leaves a mark; returns the mark."""
    mark = folder / "built"
    project = folder / name
    project.mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "9"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (project / "backend.py").write_text(EVIL.format(mark=mark))
    return mark


def test_settings_above_the_workspace_are_not_read(tmp_path: Path) -> None:
    """A ``uv.toml`` in a shared folder above would choose the packages."""
    workspace = tmp_path / "shared" / "workspace"
    workspace.mkdir(parents=True)
    (tmp_path / "shared" / "uv.toml").write_text("this is no TOML that uv would accept = = =\n")
    (workspace / "requirements.txt").write_text("")
    handle = EnvironmentManager(tmp_path / "envs").ensure(EnvironmentRequest("x", [workspace / "requirements.txt"]))
    assert run_python(handle, "print('built')") == "built"


def workspace_trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str) -> tuple[Path, Path]:
    """A project in a folder that everybody may write to, and the mark of a build that another user's settings start."""
    shared = tmp_path / "shared"
    mark = trap(shared, "wanted")
    shared.chmod(0o1777)
    (shared / settings).write_text(
        '[tool.uv.workspace]\nmembers = ["project", "project/part"]\n[tool.uv.sources]\nwanted = { path = "wanted" }\n'
    )
    if os.geteuid() == 0:
        os.chown(shared / settings, OTHER, OTHER)
    for folder in ("project", "project/part"):
        (shared / folder).mkdir()
        name = Path(folder).name
        (shared / folder / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "none"\n'
            f'[project]\nname = "{name}"\nversion = "1"\nrequires-python = ">=3.8"\ndependencies = ["wanted"]\n'
        )
    make_wheel(tmp_path / "wheels", "wanted", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    return shared, mark


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("manifest", ["pyproject.toml", "part/pyproject.toml", "root.txt", "part.txt"])
def test_a_uv_workspace_of_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    """Its root would say where dependencies come from, also those of a project that a requirements file names."""
    shared, mark = workspace_trap(tmp_path, monkeypatch, "pyproject.toml")
    project = shared / "project"
    (project / "root.txt").write_text("-e .\n")
    (project / "part.txt").write_text("./part\n")
    if manifest.startswith("part"):  # nor from a folder that has no project file of its own
        (project / "pyproject.toml").unlink()
    request = EnvironmentRequest("x", [project / manifest], project_root=project)
    handle = EnvironmentManager(tmp_path / "envs").ensure(request)
    assert run_python(handle, "import wanted; print(wanted.VERSION)") == "1"
    assert not mark.exists() and not list((tmp_path / "envs" / ".tmp").iterdir())


def test_a_uv_workspace_that_appears_during_a_build_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others may write, a look before the build comes too early: they place the file when uv has started."""
    shared, mark = workspace_trap(tmp_path, monkeypatch, "late.toml")
    placed, uv = shared / "pyproject.toml", tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\n[ "$1" = venv ] && mv "{shared}/late.toml" "{placed}"\nexec "{find_uv()}" "$@"\n')
    uv.chmod(0o755)
    request = EnvironmentRequest("x", [shared / "project" / "pyproject.toml"])
    builder, context = UvBuilder(program=str(uv), tool="uv"), build_context(tmp_path)
    interpreter = Interpreters(ProbeCache(tmp_path / "probes")).find()
    builder.build(make_plan(request, read_manifests(request), interpreter, builder), context)
    assert placed.exists() and not mark.exists()
    assert list(context.target.glob("lib/*/site-packages/wanted.py"))


def test_a_uv_workspace_of_one_s_own_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest project file above that nobody else can have put there ends uv's search."""
    shared, mark = workspace_trap(tmp_path, monkeypatch, "pyproject.toml")
    os.chown(shared / "pyproject.toml", os.geteuid(), os.getegid())
    shared.chmod(0o755)
    with pytest.raises(EnvironmentBuildError):
        EnvironmentManager(tmp_path / "envs").ensure(EnvironmentRequest("x", [shared / "project" / "pyproject.toml"]))
    assert mark.exists()


def test_what_others_can_put_above_does_not_widen_the_project(tmp_path: Path) -> None:
    """The root of a project is the folder with a ``.git`` above it, of which another user's is none."""
    project = tmp_path / "shared" / "project"
    project.mkdir(parents=True)
    (project / "requirements.txt").touch()
    (tmp_path / "shared" / ".git").mkdir(mode=0o777)
    (tmp_path / "shared" / ".git").chmod(0o777)
    assert read_manifests(EnvironmentRequest("x", [project / "requirements.txt"])).root == project


def test_a_copy_has_what_a_build_reads(tmp_path: Path) -> None:
    """Project files as copies, other files as links, history as a link; no environment, and nothing that blocks."""
    root = tmp_path / "project"
    for folder in ("src/pkg", ".git", ".venv", "node_modules"):
        (root / folder).mkdir(parents=True)
    for file in ("pyproject.toml", "src/pkg/setup.py", "src/pkg/__init__.py", ".venv/pyvenv.cfg"):
        (root / file).write_text(file)
    (root / "near").symlink_to("src")
    (root / "far").symlink_to(root / "src")
    os.mkfifo(root / "pipe")
    tmp_path.chmod(0o1777)
    request = EnvironmentRequest("x", [root / "pyproject.toml"], project_root=root)
    interpreter = Interpreters(ProbeCache(tmp_path / "probes")).find()
    builder = UvBuilder(program="uv", tool="uv")
    plan = make_plan(request, read_manifests(request), interpreter, builder)
    with safe_project_folder(plan, build_context(tmp_path)) as moved:
        copy = moved.manifests.root
        assert (
            moved.manifests.all() == [copy / "pyproject.toml"] and (copy.parent / "pyproject.toml").read_bytes() == b""
        )
        assert sorted(path.name for path in copy.iterdir()) == [".git", "near", "pyproject.toml", "src"]
        assert (copy / "src/pkg/setup.py").read_text() == "src/pkg/setup.py"
        assert not (copy / "src/pkg/setup.py").is_symlink() and (copy / ".git").is_symlink()
        assert (copy / "near/pkg/__init__.py").resolve() == root / "src/pkg/__init__.py"
    assert not copy.parent.exists()


def test_a_folder_that_vanishes_meanwhile_is_left_out(tmp_path: Path) -> None:
    """Another program may clean its cache in the project while the project is copied."""
    root = tmp_path / "root"
    for folder in ("cache/deep", "src"):
        (root / folder).mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "src" / "setup.py").touch()
    tmp_path.chmod(0o1777)
    request = EnvironmentRequest("x", [root / "pyproject.toml"], project_root=root)
    interpreter = Interpreters(ProbeCache(tmp_path / "probes")).find()
    plan = make_plan(request, read_manifests(request), interpreter, UvBuilder(program="uv", tool="uv"))
    context = build_context(tmp_path)

    class Cleaning(Cancellation):
        """Looked at before each folder: the second time the project itself has been listed."""

        looks = 0

        def check(self) -> None:
            self.looks += 1
            if self.looks == 2:
                shutil.rmtree(root / "cache")

    with safe_project_folder(plan, dataclasses.replace(context, cancellation=Cleaning())) as moved:
        assert (moved.manifests.root / "src" / "setup.py").is_file()
    assert not (root / "cache").exists()


def build_context(folder: Path) -> BuildContext:
    """One with a minute of time."""
    deadline = time.monotonic() + 60
    return BuildContext(target=folder / "target", temporary=folder / "own" / "tmp", deadline=deadline, log=Silent())


def test_a_workspace_s_own_settings_and_the_user_s_count(tmp_path: Path) -> None:
    """The nearest inside the workspace, else the user's file."""
    home, root = tmp_path / "home", tmp_path / "root"
    (home / ".config" / "uv").mkdir(parents=True)
    (root / "below").mkdir(parents=True)
    environ = {"HOME": str(home), "XDG_CONFIG_DIRS": "/nonexistent"}
    assert settings_variables(environ, root / "below", root) == {"UV_NO_CONFIG": "1"}
    (home / ".config" / "uv" / "uv.toml").write_text('index-url = "https://user:pass@one.example/simple"\n')
    assert settings_variables(environ, root, root) == {"UV_CONFIG_FILE": str(home / ".config/uv/uv.toml")}
    (root / "pyproject.toml").write_text('[tool.uv]\nindex-strategy = "first-index"\n')
    assert settings_variables(environ, root / "below", root) == {}
    assert "one.example" in chosen_sources(environ) and "pass" not in chosen_sources(environ)
    assert chosen_sources(environ) != chosen_sources({**environ, "UV_DEFAULT_INDEX": "https://two.example"})


def test_builds_have_a_temporary_folder_of_their_own(tmp_path: Path) -> None:
    """uv locks files of known names there, which another user could hold in a shared one; nothing is left of it, and
    nothing that a killed builder left is seen in it."""
    own = tmp_path / "tmp"
    own.mkdir()
    (own / "left").touch()
    context = BuildContext(target=tmp_path / "target", temporary=own, deadline=time.monotonic() + 60, log=Silent())
    say = 'printf "%s" "$TMPDIR" > seen; stat -c %a "$TMPDIR" >> seen; ls "$TMPDIR" >> seen; touch "$TMPDIR/file"'
    context.run(["/bin/sh", "-c", say], cwd=tmp_path)
    assert (tmp_path / "seen").read_text() == f"{own}700\n" and not own.exists()
