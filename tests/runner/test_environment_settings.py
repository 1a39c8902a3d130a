"""What lies above a workspace has no say in what is installed there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.package_index import chosen_sources, settings_variables
from tests.runner.environment_support import run_python

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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_uv_workspace_of_another_user_is_refused(tmp_path: Path) -> None:
    """Its root would say where the project's dependencies come from."""
    shared = tmp_path / "shared"
    mark = trap(shared, "wanted")
    (shared / "pyproject.toml").write_text(
        '[tool.uv.workspace]\nmembers = ["project"]\n[tool.uv.sources]\nwanted = { path = "wanted" }\n'
    )
    project = shared / "project" / "pyproject.toml"
    project.parent.mkdir()
    project.write_text('[project]\nname = "project"\nversion = "1"\ndependencies = ["wanted"]\n')
    os.chown(shared / "pyproject.toml", OTHER, OTHER)
    with pytest.raises(EnvironmentBuildError, match=rf"uv would read {shared}/pyproject.toml, but .*uid {OTHER}"):
        EnvironmentManager(tmp_path / "envs").ensure(EnvironmentRequest("x", [project]))
    assert not mark.exists()


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
    bench = BuildContext(target=tmp_path / "target", temporary=own, deadline=time.monotonic() + 60, log=Silent())
    say = 'printf "%s" "$TMPDIR" > seen; stat -c %a "$TMPDIR" >> seen; ls "$TMPDIR" >> seen; touch "$TMPDIR/file"'
    bench.run(["/bin/sh", "-c", say], cwd=tmp_path)
    assert (tmp_path / "seen").read_text() == f"{own}700\n" and not own.exists()
