"""The interpreter of an environment: the newest installed one that fits what the project says about Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from debug_server.runner.environments import interpreters
from debug_server.runner.environments.interpreters import QUESTION
from debug_server.runner.environments.version_ranges import parse_range
from tests.runner.environment_support import Recording

INSTALLED = ("3.8.18", "3.9.5", "3.9.18", "3.10.13", "3.12.1", "3.13.0")


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentManager:
    """A manager on a machine where these interpreters are installed, as the answers of earlier probes say."""
    versions = tmp_path / "pyenv" / "versions"
    programs = {version: versions / version / "bin" / "python" for version in INSTALLED}
    answers = {}
    for version, program in programs.items():
        program.parent.mkdir(parents=True)
        program.touch()
        facts = {"path": str(program), "version": version, "implementation": "cpython", "platform": "x", "abi": ""}
        found = program.stat()
        identity = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]
        answers["\0".join((str(program), "-I", "-S", "-c", QUESTION))] = [identity, json.dumps(facts)]
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(interpreters, "own_executable", lambda: str(programs["3.12.1"]))
    manager = EnvironmentManager(tmp_path / "envs")
    (manager.root / ".probes.json").write_text(json.dumps(answers))
    return manager


def _request(folder: Path, files: dict[str, str]) -> EnvironmentRequest:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    metadata = {"hook": 'echo "$DEBUG_SERVER_ENV_PYTHON" > "$DEBUG_SERVER_ENV_PATH/python"'}
    return EnvironmentRequest("p", [folder / next(iter(files))], metadata, project_root=folder)


def _pyproject(range_: str, *more: str) -> str:
    return "\n".join(['[project]\nname = "p"\nversion = "1"', f'requires-python = "{range_}"', *more])


_CLASSIFIERS = 'classifiers = ["Programming Language :: Python :: 3.9", "Programming Language :: Python :: 3.10"]'
_SETUP_PY = 'from setuptools import setup\nNEEDS = ">=3.6, <3.10"\nsetup(name="p", python_requires=NEEDS)\n'


@pytest.mark.parametrize(
    ("files", "version", "reason"),
    [
        ({"pyproject.toml": _pyproject(">=3.8")}, "3.13.0", "the newest installed that fits '>=3.8' in pyproject.toml"),
        ({"pyproject.toml": _pyproject(">=3.8,<3.10")}, "3.9.18", "fits '>=3.8,<3.10' in pyproject.toml"),
        ({"pyproject.toml": _pyproject(">=3.8", _CLASSIFIERS)}, "3.10.13", "the newest installed that pyproject.toml"),
        ({"pyproject.toml": '[tool.poetry.dependencies]\npython = "~3.8 || ^3.12"'}, "3.13.0", "pyproject.toml"),
        ({"pyproject.toml": _pyproject(">=3.8"), ".python-version": "3.9\n"}, "3.9.18", "named by .python-version"),
        ({"pyproject.toml": _pyproject(">=3.8"), ".python-version": "3.9.5\n"}, "3.9.5", "named by .python-version"),
        ({"pyproject.toml": _pyproject(">=3.8"), ".python-version": "3.12.9\n"}, "3.12.1", "for 3.12.9 in .python-ver"),
        ({"pyproject.toml": _pyproject(">=3.10"), ".python-version": "3.9\n"}, "3.13.0", "fits '>=3.10'"),
        ({"setup.py": _SETUP_PY}, "3.9.18", "fits '>=3.6, <3.10' in setup.py"),
        ({"setup.cfg": "[options]\npython_requires = !=3.13.*\n"}, "3.12.1", "fits '!=3.13.*' in setup.cfg"),
        ({"setup.py": "setup(**computed)", "PKG-INFO": "Requires-Python: ==3.8\n\n"}, "3.8.18", "in PKG-INFO"),
        ({"requirements/a.txt": "", "pyproject.toml": _pyproject("<3.9")}, "3.8.18", "fits '<3.9' in pyproject.toml"),
        (
            {"setup.py": "", "tox.ini": "[tox]\nenvlist =\n    lint\n    py{38,39}-{a,b}\n"},
            "3.9.18",
            "that tox.ini names",
        ),
        ({"setup.py": "", "tox.toml": 'env_list = ["3.14", "py312"]'}, "3.12.1", "that tox.toml names"),
    ],
)
def test_the_newest_that_fits(
    tmp_path: Path, manager: EnvironmentManager, files: dict[str, str], version: str, reason: str
) -> None:
    """Ranges decide, .python-version is preferred, tox and classifiers are hints; the log and the record say why."""
    log = Recording()
    handle = manager.ensure(_request(tmp_path / "project", files), log=log)
    assert (handle.path / "python").read_text().split("/")[-3] == version
    assert handle.build is not None and handle.build.python is not None
    assert handle.build.python.startswith(f"{version}, ") and reason in handle.build.python
    assert f"[debug-server] environment: Python {handle.build.python}\n" in log.text
    state = json.loads((manager.root / ".state" / "p.json").read_text())
    assert state["metadata"]["python"] == handle.build.python


def test_none_fits(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A range without an installed interpreter is refused with the range, its file and what there is."""
    request = _request(tmp_path / "project", {"pyproject.toml": _pyproject(">=3.14")})
    with pytest.raises(EnvironmentBuildError, match=r"'>=3\.14' in pyproject\.toml; there is: 3\.8\.18 \(/.*3\.13\.0"):
        manager.ensure(request)


def test_a_named_python_is_used_anyway(tmp_path: Path, manager: EnvironmentManager) -> None:
    """What the caller names wins over what the project says."""
    request = _request(tmp_path / "project", {"pyproject.toml": _pyproject(">=3.14")})
    named = EnvironmentRequest("p", request.manifests, {**(request.metadata or {}), "python": "3.9"})
    handle = manager.ensure(named)
    assert (handle.path / "python").read_text().split("/")[-3] == "3.9.18"
    assert handle.build is not None and handle.build.python is None


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=3.8", ["3.8.0", "3.12.1"], ["3.7.16"]),
        (">3.8,<=3.11.4", ["3.8.1", "3.11.4"], ["3.8.0", "3.11.5"]),
        ("~=3.8", ["3.8.1", "3.12.0"], ["3.7.9", "4.0.0"]),
        ("~=3.8.2", ["3.8.2"], ["3.8.1", "3.9.0"]),
        ("^3.9", ["3.9.0", "3.13.0"], ["3.8.18", "4.0.0"]),
        ("~3.9", ["3.9.18"], ["3.10.0"]),
        (">=2.7, !=3.0.*, !=3.1.*, <4", ["2.7.18", "3.9.0"], ["3.1.5", "4.0.1"]),
        (">=3.8 <3.10", ["3.9.0"], ["3.10.1"]),
        ("3.8 || 3.10.*", ["3.8.18", "3.10.1"], ["3.9.0"]),
        ("==3.9.5", ["3.9.5"], ["3.9.6"]),
        (">=3.9.0rc1,<4.0a0", ["3.9.0"], ["4.0.0"]),
        ("*", ["3.9.0"], []),
    ],
)
def test_ranges(text: str, inside: list[str], outside: list[str]) -> None:
    """Every operator of PEP 440 and of Poetry."""
    found = parse_range(text)
    assert found is not None
    assert ([item in found for item in inside], [item in found for item in outside]) == (
        [True] * len(inside),
        [False] * len(outside),
    )


def test_a_range_that_is_none() -> None:
    """What cannot be understood is told apart from what anything fits."""
    assert parse_range("new enough") is None
