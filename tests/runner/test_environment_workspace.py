"""The project under test: importable from its own workspace only."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from debug_server.runner.environment import (
    EnvironmentHandle,
    EnvironmentManager,
    EnvironmentRequest,
    workspace_environment,
)
from tests.runner.environment_support import run_python

FLAT = {"app/__init__.py": "", "app/core.py": "NAME = 'original'\n", "requirements.txt": ""}


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentHandle:
    """One bare environment that all workspaces share."""
    return EnvironmentManager(tmp_path_factory.mktemp("envs")).ensure(EnvironmentRequest("shared"))


def _workspace(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _run(handle: EnvironmentHandle, workspace: Path, code: str) -> str:
    return run_python(handle, code, env=workspace_environment(handle, workspace))


def test_patched_module_is_invisible_to_others(tmp_path: Path, handle: EnvironmentHandle) -> None:
    """Two workspaces share an environment; a module patched in one is the original in the other, run after run."""
    one, two = _workspace(tmp_path / "one", FLAT), _workspace(tmp_path / "two", FLAT)
    code = "import app.core; print(app.core.NAME)"
    assert [_run(handle, one, code), _run(handle, two, code)] == ["original", "original"]
    (one / "app/core.py").write_text("NAME = 'patched!'\n")
    assert [_run(handle, one, code), _run(handle, two, code)] == ["patched!", "original"]


def test_deleted_code_cannot_be_imported(tmp_path: Path, handle: EnvironmentHandle) -> None:
    """Neither a deleted module nor a deleted package is importable, even though it was imported before."""
    workspace = _workspace(tmp_path / "w", FLAT)
    assert _run(handle, workspace, "import app.core; print(1)") == "1"
    (workspace / "app/core.py").unlink()
    assert "ModuleNotFoundError" in _run(handle, workspace, "import app.core")
    (workspace / "app/__init__.py").unlink()
    (workspace / "app").rmdir()  # would fail if bytecode had been left in it
    assert "ModuleNotFoundError" in _run(handle, workspace, "import app")


def test_change_within_a_second_is_seen(tmp_path: Path, handle: EnvironmentHandle) -> None:
    """A patch of the same size and time stamp is not hidden by bytecode of what was there before."""
    workspace = _workspace(tmp_path / "w", FLAT)
    core = workspace / "app/core.py"
    code = "import app.core; print(app.core.NAME)"
    os.utime(core, (1, 1))
    assert _run(handle, workspace, code) == "original"
    core.write_text(core.read_text().replace("original", "replaced"))
    os.utime(core, (1, 1))
    assert _run(handle, workspace, code) == "replaced"


def test_environment_holds_no_trace_of_the_project(tmp_path: Path, handle: EnvironmentHandle) -> None:
    """Without its workspace's variables the project cannot be imported from the shared environment."""
    _run(handle, _workspace(tmp_path / "w", FLAT), "import app")
    assert "ModuleNotFoundError" in run_python(handle, "import app")


SETUPTOOLS = '[tool.setuptools.packages.find]\nwhere = ["lib"]\n'
HATCH = '[tool.hatch.build.targets.wheel]\npackages = ["python/app"]\n'
UV = '[tool.uv.workspace]\nmembers = ["packages/*"]\n'


@pytest.mark.parametrize(
    ("files", "root"),
    [
        ({"app.py": ""}, ""),
        ({"src/app/__init__.py": ""}, "src"),
        ({"src/__init__.py": "", "app.py": ""}, ""),
        ({"lib/app.py": "", "pyproject.toml": SETUPTOOLS}, "lib"),
        ({"python/app/__init__.py": "", "pyproject.toml": HATCH}, "python"),
        ({"packages/app/src/app/__init__.py": "", "packages/app/pyproject.toml": "", "pyproject.toml": UV}, ""),
        ({"app.py": "", "pyproject.toml": "not toml ["}, ""),
        ({"app.py": "", "pyproject.toml": '[tool.setuptools]\npackage-dir = {"" = "/etc"}'}, ""),
    ],
)
def test_import_roots(tmp_path: Path, handle: EnvironmentHandle, files: dict[str, str], root: str) -> None:
    """Flat, src, declared and workspace layouts are found; a declaration outside the workspace is not followed."""
    workspace = _workspace(tmp_path / "w", files)
    variables = workspace_environment(handle, workspace)
    assert variables["PYTHONPATH"].split(":")[0] == str(workspace / root).rstrip("/")
    assert _run(handle, workspace, "import app; print(1)") == "1"


def test_a_workspace_that_wants_to_keep_us_busy(tmp_path: Path, handle: EnvironmentHandle) -> None:
    """Globs over links to their own folder, empty pages, bottomless nesting: none holds the interpreter for long."""
    project = f'[project]\nname = "app"\n[tool.uv.workspace]\nmembers = ["{"*/" * 39}x", "**"]\n'
    files = {"pyproject.toml": project, "app/__init__.py": "\n" * 1_000_000, "inner/pyproject.toml": ""}
    workspace = _workspace(tmp_path / "w", files)
    (workspace / "one").symlink_to(".")
    (workspace / "two").symlink_to(".")
    found = workspace_environment(handle, workspace)["PYTHONPATH"].split(":")
    assert found[:2] == [str(workspace), str(workspace / "inner")]
    (workspace / "pyproject.toml").write_text(f"a = {'[' * 5000}{']' * 5000}\n")
    assert workspace_environment(handle, workspace)["PYTHONPATH"] == str(workspace)


def test_variables(tmp_path: Path, handle: EnvironmentHandle) -> None:
    """The environment's programs come first, what was on the base's path follows, and nothing of ours leaks in."""
    variables = workspace_environment(handle, tmp_path, base_env={"PATH": "/usr/bin", "PYTHONPATH": "/elsewhere"})
    assert variables["VIRTUAL_ENV"] == str(handle.path)
    assert variables["PATH"] == f"{handle.bin_path}:/usr/bin"
    assert variables["PYTHONPATH"] == str(tmp_path)


def test_project_metadata_without_installation(tmp_path: Path, handle: EnvironmentHandle) -> None:
    """Name, version, entry points and scripts of the project answer as if it were installed, from its own code."""
    project = (
        '[project]\nname = "my-app"\ndynamic = ["version"]\n'
        '[project.scripts]\nmy-app = "my_app.cli:main.run"\n'
        '[project.entry-points.pytest11]\nmy = "my_app.plugin"\n'
    )
    files = {
        "pyproject.toml": project,
        "src/my_app/__init__.py": '__version__ = "3.2.1"\n',
        "src/my_app/cli.py": "class main:\n    @staticmethod\n    def run():\n        print('ran'); return 7\n",
    }
    workspace = _workspace(tmp_path / "w", files)
    code = (
        "import importlib.metadata as m;"
        "print(m.version('my-app'), *[e.name for e in m.entry_points(group='pytest11') if e.value == 'my_app.plugin'])"
    )
    assert _run(handle, workspace, code) == "3.2.1 my"
    variables = workspace_environment(handle, workspace)
    script = shutil.which("my-app", path=variables["PATH"])
    assert script is not None
    done = subprocess.run([script], env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("ran\n", 7)
    (workspace / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: my-app\nVersion: 9.9\n\nText\n")
    assert _run(handle, workspace, code) == "9.9 my"


def test_projects_in_folders(tmp_path: Path) -> None:
    """Manifests in folders put the code and the scripts of those projects in place, several at once."""
    manager = EnvironmentManager(tmp_path / "envs")
    files = {}
    for name in ("one", "two"):
        files[f"packages/{name}/pyproject.toml"] = (
            f'[project]\nname = "{name}"\n[project.scripts]\n{name} = "{name}:say"\n'
        )
        files[f"packages/{name}/src/{name}/__init__.py"] = f"def say():\n    print({name!r})\n"
    workspace = _workspace(tmp_path / "w", files)
    request = EnvironmentRequest("p", [workspace / name for name in files if name.endswith(".toml")])
    handle = manager.ensure(EnvironmentRequest("bare"))
    variables = manager.workspace_variables(handle, workspace, request)
    assert run_python(handle, "import one, two; one.say(); two.say()", env=variables) == "one\ntwo"
    for name in ("one", "two"):
        done = subprocess.run([name], env=variables, capture_output=True, text=True, check=False, timeout=60)
        assert (done.stdout, done.returncode) == (f"{name}\n", 0)


@pytest.mark.parametrize(
    "files",
    [
        {
            "setup.cfg": "[metadata]\nname = my-app\nversion = 2\n"
            "[options.entry_points]\nconsole_scripts =\n    my-app = app:say\n"
        },
        {"setup.py": "setup(name='my-app', version='2', entry_points={'console_scripts': ['my-app = app:say']})"},
        {"setup.py": "setup(name='my-app', version='2', entry_points='[console_scripts]\\nmy-app = app:say\\n')"},
        {
            "pyproject.toml": '[tool.poetry]\nname = "my-app"\nversion = "2"\n'
            '[tool.poetry.scripts]\nmy-app = "app:say"\n'
        },
    ],
)
def test_metadata_in_every_notation(tmp_path: Path, handle: EnvironmentHandle, files: dict[str, str]) -> None:
    """setup.cfg, setup.py and Poetry declare scripts, too."""
    workspace = _workspace(tmp_path / "w", {**files, "app.py": "def say():\n    print('said')\n"})
    variables = workspace_environment(handle, workspace)
    done = subprocess.run(["my-app"], env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "said\n", done.stderr
    assert _run(handle, workspace, "import importlib.metadata as m; print(m.version('my-app'))") == "2"
