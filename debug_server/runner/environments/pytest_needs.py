"""Whether the tests of a project are for pytest, and which plugins its settings ask for."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from debug_server.runner.environments.project_files import (
    names_in,
    parse_ini,
    read_project,
    read_text,
    table_at,
    texts_of,
)

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
_FOLDERS = ("", "tests", "test", "testing", "src/tests")
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
    """A file that pytest would collect, or its conftest.py."""
    for folder in _FOLDERS:
        names = names_in(root / folder)
        for pattern in ("conftest.py", "test_*.py", "*_test.py"):
            if found := fnmatch.filter(names, pattern):
                return f"{folder}/{found[0]}".lstrip("/")
        if folder and names and (below := next((root / folder).glob("*/test_*.py"), None)) is not None:
            return below.relative_to(root).as_posix()
    return None
