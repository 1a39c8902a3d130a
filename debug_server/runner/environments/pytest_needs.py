"""Whether the tests of a project are for pytest, and which plugins its settings ask for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from debug_server.runner.environments.build_inputs import is_made
from debug_server.runner.environments.project_files import parse_ini, read_project, read_text, table_at, texts_of

# Options in ``addopts`` that pytest refuses without the plugin.
_PLUGINS = {
    "--cov": "pytest-cov",
    "--numprocesses": "pytest-xdist",
    "--dist": "pytest-xdist",
    "--timeout": "pytest-timeout",
    "--benchmark": "pytest-benchmark",
    "--asyncio-mode": "pytest-asyncio",
    "--mypy": "pytest-mypy",
    "--doctest-plus": "pytest-doctestplus",
    "--reruns": "pytest-rerunfailures",
    "--randomly": "pytest-randomly",
    "--disable-socket": "pytest-socket",
    "--mpl": "pytest-mpl",
    "--black": "pytest-black",
    "--flake8": "pytest-flake8",
    "--isort": "pytest-isort",
    "--pylint": "pytest-pylint",
    "--snapshot": "syrupy",
}
_WORKERS = re.compile(r"(?:^|\s)-n\s*(?:\d|auto|logical)")
_TEST_FILE = re.compile(r"conftest\.py|test_.*\.py|.*_test\.py")
_TEST_FOLDERS = ("tests", "test", "testing")
_SKIPPED = ("docs", "doc", "examples", "vendor", "third_party", "node_modules")
_MOST_FOLDERS = 500  # to look into
_REQUIRED = re.compile(
    r"[A-Za-z0-9][\w.-]*(?:\[[\w,.-]*\])?\s*(?:[<>=!~]=?=?\s*[\w.*]+(?:\s*,\s*[<>=!~]=?=?\s*[\w.*]+)*)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PytestNeeds:
    """What to install, and the file that shows it."""

    packages: tuple[str, ...]
    evidence: str


def pytest_needs(root: Path) -> PytestNeeds | None:
    """What the tests in ``root`` need of pytest; None if nothing shows that they are for it."""
    settings = next((found for found in _settings(root) if found is not None), None)
    evidence = settings[0] if settings else _tests(root)
    if evidence is None:
        return None
    options = settings[1] if settings else {}
    addopts = options.get("addopts", "")
    plugins = [name for option, name in _PLUGINS.items() if re.search(rf"(?:^|\s){option}", addopts)]
    plugins += ["pytest-xdist"] if _WORKERS.search(addopts) else []
    plugins += ["pytest-asyncio"] if "asyncio_mode" in options else []
    required = _REQUIRED.findall(options.get("required_plugins", ""))
    packages = dict.fromkeys(["pytest", *plugins, *(re.sub(r"\s", "", item) for item in required)])
    return PytestNeeds(packages=tuple(packages), evidence=evidence)


def _settings(root: Path) -> Iterator[tuple[str, dict[str, str]] | None]:
    """The file with the settings of pytest, and the settings, as pytest looks for them."""
    for name, section in (("pytest.ini", "pytest"), (".pytest.ini", "pytest")):
        if (root / name).is_file():
            yield name, parse_ini(read_text(root / name)).sections.get(section, {})
    table = table_at(read_project(root), "tool", "pytest", "ini_options")
    if table:
        yield "pyproject.toml", {name: " ".join(texts_of(value)) for name, value in table.items()}
    for name, section in (("tox.ini", "pytest"), ("setup.cfg", "tool:pytest")):
        found = parse_ini(read_text(root / name)).sections.get(section)
        yield None if found is None else (name, found)


def _tests(root: Path) -> str | None:
    """A file that pytest would collect, or a conftest.py; folders near the top and for tests come first."""
    waiting = [root]
    for _ in range(_MOST_FOLDERS):
        if not waiting:
            return None
        folder = waiting.pop(0)
        with suppress(OSError), os.scandir(folder) as entries:
            items = sorted(entries, key=lambda item: item.name)
            for item in items:
                if _TEST_FILE.fullmatch(item.name) and item.is_file():
                    return os.path.relpath(item.path, root)
            below = [item for item in items if item.is_dir(follow_symlinks=False) and not _is_skipped(item)]
            waiting += [Path(item.path) for item in below]
            waiting.sort(key=lambda path: (len(path.parts), path.name not in _TEST_FOLDERS))
    return None


def _is_skipped(item: os.DirEntry[str]) -> bool:
    return item.name in _SKIPPED or is_made(item.name) or os.path.lexists(f"{item.path}/pyvenv.cfg")
