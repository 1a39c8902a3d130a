"""The project under test, where its sources alone are not enough: built, and placed in its own workspace."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from debug_server.runner.environments.build_need import build_digest, build_need
from debug_server.worktrees.workspace_diff import diff_workspace
from tests.home import plain_git
from tests.runner.environment_support import Recording, run_python

PYPROJECT = """
[project]
name = "app"
version = "1.0"
[build-system]
requires = []
build-backend = "mesonpy_like"
backend-path = ["."]
"""
# A build backend that "compiles" app/fast.in into a module, and says which build it was.
BACKEND = """
import pathlib, zipfile
def get_requires_for_build_wheel(config_settings=None): return []
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with pathlib.Path("LOG").open("a") as log: log.write("built")
    source = pathlib.Path("src/app/fast.in").read_text()
    if "broken" in source: raise SystemExit("fast.in does not compile")
    with zipfile.ZipFile(pathlib.Path(folder, "app-1.0-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("app/__init__.py", "NAME = 'of the wheel'")
        wheel.writestr("app/fast.py", f"VALUE = {source!r}")
        wheel.writestr("app-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: app\\nVersion: 1.0\\n")
        wheel.writestr("app-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("app-1.0.dist-info/entry_points.txt", "[console_scripts]\\napp = app.main:main\\n")
        wheel.writestr("app-1.0.dist-info/RECORD", "")
    return "app-1.0-py3-none-any.whl"
"""
FILES = {
    "pyproject.toml": PYPROJECT.replace("mesonpy_like", "mesonpy"),
    "mesonpy.py": BACKEND,
    "src/app/__init__.py": "NAME = 'of the sources'\n",
    "src/app/main.py": "def main():\n    from app.fast import VALUE\n    print(VALUE)\n",
    "src/app/fast.in": "one",
}
SEEN = "import app, app.fast; print(app.NAME, app.fast.VALUE)"


class Workspace:
    """A workspace, and the runs in it."""

    def __init__(self, manager: EnvironmentManager, folder: Path) -> None:
        self.manager, self.folder = manager, folder
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self.log = Recording()

    def variables(self) -> dict[str, str]:
        """Those of a command here."""
        self.log = Recording()
        request = EnvironmentRequest("w", project_root=self.folder)
        handle = self.manager.ensure(request)
        return self.manager.workspace_variables(handle, self.folder, request, log=self.log)

    def run(self, code: str) -> str:
        """What a program prints here."""
        variables = self.variables()
        return run_python(self.manager.ensure(EnvironmentRequest("w")), code, env=variables)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentManager:
    """A manager of its own."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    return EnvironmentManager(tmp_path / "envs")


def test_an_edit_of_what_is_compiled_rebuilds(tmp_path: Path, manager: EnvironmentManager) -> None:
    """The sources are used as they are, what only a build makes is beside them, and other workspaces see none of it."""
    one, two = Workspace(manager, tmp_path / "one"), Workspace(manager, tmp_path / "two")
    assert one.run(SEEN) == "of the sources one"
    assert "project: building it, because mesonpy compiles it" in one.log.text
    assert two.run(SEEN) == "of the sources one" and "building" not in two.log.text
    (one.folder / "src/app/__init__.py").write_text("NAME = 'edited'\n")
    assert one.run(SEEN) == "edited one" and "building" not in one.log.text
    (one.folder / "src/app/fast.in").write_text("two")
    assert one.run(SEEN) == "edited two" and "building" in one.log.text
    assert two.run(SEEN) == "of the sources one" and "building" not in two.log.text
    assert not (one.folder / "LOG").exists()
    (one.folder / "src/app/fast.py").unlink()  # as a reset of the workspace does
    assert one.run(SEEN) == "edited two" and "building" not in one.log.text


def test_scripts_and_metadata_of_a_build(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A built project is installed for programs that look for it."""
    workspace = Workspace(manager, tmp_path / "one")
    variables = workspace.variables()
    done = subprocess.run(["app"], env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "one\n", done.stderr
    assert workspace.run("import importlib.metadata as m; print(m.version('app'))") == "1.0"


def test_a_failed_build_is_told(tmp_path: Path, manager: EnvironmentManager) -> None:
    """The error has the words of the compiler, nothing half-made is used, and a repaired source is built."""
    workspace = Workspace(manager, tmp_path / "one")
    (workspace.folder / "src/app/fast.in").write_text("broken")
    for _ in range(2):
        with pytest.raises(EnvironmentBuildError, match=r"(?s)build of the project itself.*fast\.in does not compile"):
            workspace.run(SEEN)
    (workspace.folder / "src/app/fast.in").write_text("right")
    assert workspace.run(SEEN) == "of the sources right"


def test_git_does_not_see_what_is_placed(tmp_path: Path, manager: EnvironmentManager) -> None:
    """Neither ``git status`` nor the diff of a session shows files that a build made; other new files are shown."""
    workspace = Workspace(manager, tmp_path / "one")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["rev-parse", "HEAD"]):
        done = subprocess.run(
            [*git, *arguments], cwd=workspace.folder, env=plain_git(), check=True, capture_output=True
        )
    commit = done.stdout.decode().strip()
    assert workspace.run(SEEN) == "of the sources one"
    (workspace.folder / "new").touch()
    status = subprocess.run(
        ["git", "status", "--short"], cwd=workspace.folder, env=plain_git(), capture_output=True, check=True
    )
    assert status.stdout == b"?? new\n"
    diff = diff_workspace(workspace.folder, commit)
    assert b"b/new" in diff and b"fast.py" not in diff


@pytest.mark.parametrize("link", ["src/app/fast.py", "src/app"])
def test_no_link_is_followed(tmp_path: Path, manager: EnvironmentManager, link: str) -> None:
    """A command that puts a link where a built file goes does not make us write elsewhere."""
    workspace = Workspace(manager, tmp_path / "one")
    workspace.variables()
    outside = tmp_path / "outside"
    (workspace.folder / link).rename(outside)
    (workspace.folder / link).symlink_to(outside)
    target = outside if outside.is_file() else outside / "fast.py"
    target.write_text("precious")
    with suppress(EnvironmentBuildError):
        workspace.variables()
    assert target.read_text() == "precious"


def test_one_build_for_many(tmp_path: Path, manager: EnvironmentManager) -> None:
    """Workspaces that need the same build at once wait for one."""
    workspaces = [Workspace(manager, tmp_path / f"w{number}") for number in range(6)]
    with ThreadPoolExecutor(len(workspaces)) as pool:
        list(pool.map(Workspace.variables, workspaces))
    assert sum("building it" in workspace.log.text for workspace in workspaces) == 1
    assert all((workspace.folder / "src/app/fast.py").exists() for workspace in workspaces)


def test_a_killed_build_is_not_used(tmp_path: Path, manager: EnvironmentManager) -> None:
    """What a killed builder left without its last file is built anew."""
    workspace = Workspace(manager, tmp_path / "one")
    workspace.variables()
    done = next((manager.root / ".builds").glob("*/*/done"))
    done.unlink()
    (next(done.parent.glob("placed/src/app/fast.py"))).write_text("VALUE = 'half'\n")
    assert workspace.run(SEEN) == "of the sources one" and "building it" in workspace.log.text


def test_builds_go_with_their_environment(tmp_path: Path, manager: EnvironmentManager) -> None:
    """The collection of an environment removes what was built for it."""
    Workspace(manager, tmp_path / "one").variables()
    assert list((manager.root / ".builds").glob("*/*/done"))
    manager.collect_garbage(max_idle=0, grace=0)
    assert not list((manager.root / ".builds").glob("*/*"))


def test_a_version_belongs_to_its_commit(tmp_path: Path) -> None:
    """A version file is made anew for another commit; other projects do not depend on the commit."""
    (tmp_path / ".git").mkdir()
    seen = []
    for text in ("", '[tool.setuptools_scm]\nversion_file = "v.py"\n'):
        (tmp_path / "pyproject.toml").write_text(text)
        for commit in ("a" * 40, "b" * 40):
            (tmp_path / ".git" / "HEAD").write_text(commit)
            seen.append(build_digest(tmp_path, placed={}))
    assert seen[0] == seen[1] and seen[2] != seen[3]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"pyproject.toml": '[project]\nname = "p"\n'}, None),
        ({"setup.py": "from setuptools import setup\nsetup(name='p', ext_modules=[])"}, None),
        ({"setup.py": "setup(ext_modules=[Extension('a', ['a.c'])])"}, "setup.py has extension modules"),
        ({"setup.py": "setup(**arguments(Extension('a', ['a.c'])))"}, "setup.py has extension modules"),
        ({"pyproject.toml": '[build-system]\nbuild-backend = "maturin"\n'}, "maturin compiles it"),
        ({"pyproject.toml": '[build-system]\nbuild-backend = "own"\nbackend-path = ["."]\n'}, None),
        (
            {"pyproject.toml": '[build-system]\nbuild-backend = "own"\nbackend-path = ["."]\n', "a.pyx": ""},
            "own compiles a.pyx",
        ),
        ({"pyproject.toml": '[build-system]\nbuild-backend = "own"\nbackend-path = ["."]\n', "tests/a.c": ""}, None),
        ({"pyproject.toml": '[tool.setuptools_scm]\nwrite_to = "p/_version.py"\n'}, "that makes p/_version.py"),
        ({"pyproject.toml": '[tool.setuptools_scm]\nwrite_to = "v.py"\n', "v.py": ""}, None),
        ({"pyproject.toml": '[tool.hatch.build.hooks.vcs]\nversion-file = "v.py"\n'}, "that makes v.py"),
        ({"pyproject.toml": "[tool.hatch.build.hooks.mypyc]\n"}, "hatch runs the build hook 'mypyc'"),
        ({"pyproject.toml": '[tool.poetry]\nbuild = "build.py"\n'}, "pyproject.toml names a build script"),
    ],
)
def test_what_needs_a_build(tmp_path: Path, files: dict[str, str], reason: str | None) -> None:
    """Extension modules, and version files that are not there."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert build_need(tmp_path) == reason
