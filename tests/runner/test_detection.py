"""What is chosen for a project whose files nobody has named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from debug_server.runner.environments import searched_roots
from debug_server.runner.environments.detection import Detection, detect_project
from debug_server.runner.environments.searched_roots import SearchedRoots
from tests.runner.environment_support import Recording, make_wheel, run_python
from tests.running import eventually

PROJECT = '[project]\nname = "p"\nversion = "1"\n'
EXTRA = PROJECT + '[project.optional-dependencies]\ndev = ["ruff"]\ntests = ["hypothesis"]\ndocs = ["sphinx"]\n'
GROUPS = PROJECT + '[dependency-groups]\ndev = [{include-group = "test"}]\ntest = ["pytest"]\n'
POETRY = '[tool.poetry]\nname = "p"\n[tool.poetry.group.dev.dependencies]\npytest = "^8.0"\n'
HATCH = PROJECT + '[tool.hatch.envs.test]\ndependencies = ["pytest"]\nfeatures = ["all"]\n'
TOX = "[base]\ndeps =\n    pytest>=7\n[testenv]\ndeps =\n    {[base]deps}\n    -r {toxinidir}/reqs.txt\n    py37: old\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, Detection()),
        ({"README.md": ""}, Detection()),
        ({"pyproject.toml": "[tool.black]\n"}, Detection()),
        ({"pyproject.toml": EXTRA}, Detection(manifests=("pyproject.toml",), extras=("tests",))),
        ({"pyproject.toml": GROUPS, "uv.lock": ""}, Detection(manifests=("pyproject.toml",), groups=("test",))),
        ({"pyproject.toml": POETRY}, Detection(manifests=("pyproject.toml",), groups=("dev",))),
        (
            {"pyproject.toml": HATCH},
            Detection(manifests=("pyproject.toml",), groups=("hatch:test",), extras=("all",)),
        ),
        (
            {
                "pyproject.toml": PROJECT,
                "requirements-dev.txt": "",
                "requirements_test.txt": "",
                "requirements.txt": "",
            },
            Detection(manifests=("pyproject.toml", "requirements_test.txt")),
        ),
        (
            {"setup.py": "setup(extras_require={'test': ['x']})", "tox.ini": TOX},
            Detection(manifests=("setup.py",), extras=("test",)),
        ),
        (
            {"setup.py": "setup()", "tox.ini": TOX, "reqs.txt": ""},
            Detection(manifests=("setup.py", "reqs.txt"), packages=("pytest>=7",)),
        ),
        (
            {"setup.cfg": "[metadata]\nname = p\n", "requirements/dev.txt": ""},
            Detection(manifests=("setup.cfg", "requirements/dev.txt")),
        ),
        ({"setup.py": "setup()", "requirements.txt": ""}, Detection(manifests=("setup.py", "requirements.txt"))),
        (
            {"requirements.txt": "", "tests/requirements.txt": "", "requirements-docs.txt": ""},
            Detection(manifests=("requirements.txt", "tests/requirements.txt")),
        ),
        (
            {
                "Pipfile": '[packages]\na = "*"\n[dev-packages]\n'
                "b = {version = '~=1.2', markers = \"os_name == 'posix'\"}\n"
            },
            Detection(packages=("a", "b~=1.2 ; (os_name == 'posix')")),
        ),
        ({"environment.yml": "dependencies:\n- python\n"}, Detection(manifests=("environment.yml",))),
        ({"tests/test_a.py": ""}, Detection(packages=("pytest",))),
        ({"src/p/inner/tests/test_a.py": ""}, Detection(packages=("pytest",))),
        ({"docs/test_a.py": "", "node_modules/a/test_b.py": "", "v/pyvenv.cfg": "", "v/test_c.py": ""}, Detection()),
        (
            {"setup.py": "setup()", "pytest.ini": "[pytest]\naddopts = --cov=p -n 2\nasyncio_mode = auto\n"},
            Detection(manifests=("setup.py",), packages=("pytest", "pytest-cov", "pytest-xdist", "pytest-asyncio")),
        ),
        (
            {"pyproject.toml": PROJECT + '[tool.pytest.ini_options]\nrequired_plugins = ["pytest-mock >= 3", "a"]\n'},
            Detection(manifests=("pyproject.toml",), packages=("pytest", "pytest-mock>=3", "a")),
        ),
        ({"requirements.txt": "a==1 --hash=sha256:0\n", "conftest.py": ""}, Detection(manifests=("requirements.txt",))),
        ({"python/pyproject.toml": EXTRA}, Detection(manifests=("python/pyproject.toml",), extras=("tests",))),
        ({"packages/a/setup.py": "", "packages/b/setup.py": ""}, Detection()),
    ],
)
def test_what_is_chosen(tmp_path: Path, files: dict[str, str], expected: Detection) -> None:
    """What the project declares, and what its maintainers install for tests: each with a reason."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = detect_project(tmp_path)
    assert (found.manifests, found.extras, found.groups, found.packages) == (
        expected.manifests,
        expected.extras,
        expected.groups,
        expected.packages,
    )
    assert bool(found.reasons) == bool(found)


def test_poetry_s_ranges(tmp_path: Path) -> None:
    """Ranges, extras, markers and repositories of Poetry are those of its own metadata."""
    (tmp_path / "Pipfile").write_text(
        '[packages]\na = "^1.2"\nb = "^0.3.1"\nc = "~2.4"\nd = "1.0"\ne = ">=1, <2"\nf = "^0"\n'
        'g = {version = "^1.0", extras = ["x", "y"], python = "<3.9"}\nh = {git = "https://host/h.git", tag = "v1"}\n'
        'i = {path = "../i"}\n'
    )
    assert detect_project(tmp_path).packages == (
        "a>=1.2,<2",
        "b>=0.3.1,<0.4",
        "c>=2.4,<2.5",
        "d==1.0",
        "e>=1,<2",
        "f>=0,<1",
        "g[x,y]>=1.0,<2 ; (python_version < '3.9')",
        "h @ git+https://host/h.git@v1",
    )


def test_a_workspace_that_wants_to_keep_us_waiting(tmp_path: Path) -> None:
    """Pipes and folders in the place of project files are not waited for, and a file without an end is cut."""
    for name in ("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "PKG-INFO", "Pipfile", "pytest.ini"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "requirements.txt").mkdir()
    (tmp_path / "tox.toml").symlink_to("/dev/zero")
    assert not detect_project(tmp_path)


def test_others_are_named(tmp_path: Path) -> None:
    """A project in another language, and several projects, are told with what to do."""
    (tmp_path / "package.json").write_text("{}")
    assert "`npm ci`" in detect_project(tmp_path).describe()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "setup.py").touch()
    assert "--manifest from a/setup.py, b/setup.py" in detect_project(tmp_path).describe()


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentManager:
    """A manager whose only index has five packages."""
    for name in ("tinya", "tinyb", "tinyc", "tinyd"):
        make_wheel(tmp_path / "wheels", name, "1.5")
    make_wheel(tmp_path / "wheels", "pytest", "999")  # newer than any that is found elsewhere
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    return EnvironmentManager(tmp_path / "envs")


def _detecting(folder: Path, files: dict[str, str]) -> EnvironmentRequest:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return EnvironmentRequest("d", project_root=folder, detect=True)


def test_a_detected_environment(tmp_path: Path, manager: EnvironmentManager) -> None:
    """What is found is installed; the log, the report and the next build tell it, and nothing else is shared."""
    files = {
        "pyproject.toml": PROJECT + 'dependencies = ["tinya"]\n[tool.pdm.dev-dependencies]\ntest = ["tinyb<2"]\n',
        "tests/test_a.py": "",
    }
    log = Recording()
    handle = manager.ensure(_detecting(tmp_path / "project", files), log=log)
    assert handle.build is not None
    assert handle.build.packages == ("pytest==999", "tinya==1.5", "tinyb==1.5")
    assert handle.build.chosen == "pyproject.toml; group 'test', named for tests; pytest for tests/test_a.py"
    assert f"[debug-server] environment: {handle.build.chosen}\n" in log.text
    assert run_python(handle, "import tinya, tinyb, pytest; print(1)") == "1"
    (tmp_path / "project/tests/test_a.py").unlink()
    again = manager.ensure(EnvironmentRequest("d", project_root=tmp_path / "project", detect=True))
    assert again.build is not None
    assert again.build.packages == ("tinya==1.5", "tinyb==1.5")


def test_named_extras_replace_the_chosen_ones(tmp_path: Path, manager: EnvironmentManager) -> None:
    """Whoever names extras gets these; the manifests are still found."""
    text = PROJECT + '[project.optional-dependencies]\ntest = ["tinya"]\nmore = ["tinyb"]\n'
    _detecting(tmp_path / "project", {"pyproject.toml": text})
    request = EnvironmentRequest("d", project_root=tmp_path / "project", detect=True, extras=["more"])
    handle = manager.ensure(request)
    assert handle.build is not None
    assert handle.build.packages == ("tinyb==1.5",)


def test_a_folder_without_a_project(tmp_path: Path, manager: EnvironmentManager) -> None:
    """Nothing to install is no environment, and no line in the log."""
    log = Recording()
    assert manager.detected(_detecting(tmp_path / "project", {"a.txt": ""}), log=log) is None
    assert log.text == ""


@pytest.mark.parametrize(
    ("files", "group", "packages"),
    [
        (
            {"pyproject.toml": '[tool.poetry]\nname = "p"\n[tool.poetry.dev-dependencies]\ntinyc = "*"\n'},
            "dev",
            "tinyc",
        ),
        ({"pyproject.toml": PROJECT + '[tool.hatch.envs.ci]\ndependencies = ["tinyd"]\n'}, "hatch:ci", "tinyd"),
    ],
)
def test_groups_of_every_tool(
    tmp_path: Path, manager: EnvironmentManager, files: dict[str, str], group: str, packages: str
) -> None:
    """A group of Poetry or hatch is installed like one of PEP 735; an unknown one is refused with those that exist."""
    files["pyproject.toml"] += '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    files["backend.py"] = (
        "import pathlib\n"
        "def get_requires_for_build_wheel(config_settings=None): return []\n"
        "def prepare_metadata_for_build_wheel(folder, config_settings=None):\n"
        "    info = pathlib.Path(folder, 'p-1.dist-info'); info.mkdir()\n"
        "    (info / 'METADATA').write_text('Metadata-Version: 2.1\\nName: p\\nVersion: 1\\n')\n"
        "    return info.name\n"
    )
    _detecting(tmp_path / "project", files)
    manifest = tmp_path / "project/pyproject.toml"
    handle = manager.ensure(EnvironmentRequest("g", [manifest], groups=[group]))
    assert handle.build is not None
    assert handle.build.packages == (f"{packages}==1.5",)
    with pytest.raises(Exception, match=rf"no dependency group named 'nope'; defined: {group}"):
        manager.ensure(EnvironmentRequest("g", [manifest], groups=["nope"]))


def test_extras_of_setup_files(tmp_path: Path, manager: EnvironmentManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra of a setup.cfg is accepted as one of pyproject.toml is."""
    request = _detecting(tmp_path / "project", {"setup.cfg": "[options.extras_require]\nmore = tinya\n"})
    named = EnvironmentRequest(
        "e", [tmp_path / "project/setup.cfg"], extras=["more"], project_root=request.project_root
    )
    assert manager.plan_fingerprint(named)


def test_an_empty_root_is_searched_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each command; but after a change of a name in it, or of a file that may declare a project."""
    searched: list[Path] = []

    def search(root: Path) -> Detection:
        searched.append(root)
        return detect_project(root)

    monkeypatch.setattr(searched_roots, "detect_project", search)
    roots = SearchedRoots()
    (tmp_path / "pyproject.toml").write_text("[tool.black]\n")

    def is_remembered() -> bool:
        before = len(searched)
        assert not roots.detect(tmp_path)
        return len(searched) == before

    eventually(is_remembered)  # once the last change is a second ago
    (tmp_path / "a.txt").touch()
    assert not is_remembered()
    eventually(is_remembered)
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write(PROJECT)
    assert roots.detect(tmp_path).manifests == ("pyproject.toml",)
    assert roots.detect(tmp_path).manifests == ("pyproject.toml",)
    (tmp_path / "pyproject.toml").unlink()
    assert not is_remembered()
