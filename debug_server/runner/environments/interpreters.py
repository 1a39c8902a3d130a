"""Finds an installed Python interpreter by version; shims are resolved to the real program."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.probes import ProbeCache, is_script
from debug_server.runner.environments.version_ranges import numbers_of

QUESTION = (
    "import json, os, sys, sysconfig;"
    "print(json.dumps({"
    "'path': os.path.realpath(getattr(sys, '_base_executable', None) or sys.executable),"
    "'version': '.'.join(map(str, sys.version_info[:3])),"
    "'implementation': sys.implementation.name,"
    "'platform': sysconfig.get_platform(),"
    "'abi': sysconfig.get_config_var('SOABI') or ''}))"
)
_WANTED = re.compile(r"(?:python)?(\d+(?:\.\d+){0,2})")
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
_MINORS = range(7, 25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """One installed interpreter, by its real path."""

    path: str
    version: str  # 3.11.7
    implementation: str  # cpython
    platform: str  # linux-x86_64
    abi: str

    def identity(self) -> str:
        """The facts that an environment depends on, as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def is_usual(self) -> bool:
        """Whether it is CPython with the global lock, which packages are made for."""
        return self.implementation == "cpython" and not re.match(r"cpython-\d+t", self.abi)


class Interpreters:
    """The interpreters of this machine."""

    def __init__(self, probes: ProbeCache) -> None:
        self._probes = probes
        self._chosen: dict[str, str] = {}  # wanted version -> path; probed each time, so never stale

    def find(self, wanted: str | None = None) -> Interpreter:
        """The interpreter of this process if it fits, else the newest that fits.

        ``wanted`` is a version or an absolute path.
        """
        if wanted is not None and wanted.startswith("/"):
            return self._at(wanted)
        version = _parse(wanted)
        known = self._probe(self._chosen.get(version) or own_executable())
        if known is not None and _matches_version(known.version, version):
            return known
        fitting = [found for found in self._search(version) if _matches_version(found.version, version)]
        if not fitting:
            raise EnvironmentBuildError(
                f"no Python {wanted} is installed; there is: {describe_interpreters(self.installed())}"
            )
        best = max(fitting, key=lambda found: numbers_of(found.version))
        self._chosen[version] = best.path
        return best

    def installed(self) -> list[Interpreter]:
        """Every interpreter that can be found, oldest first."""
        found = {item.path: item for item in self._search("")}
        return sorted(found.values(), key=lambda item: (numbers_of(item.version), item.path))

    def _at(self, path: str) -> Interpreter:
        found = self._probe(path)
        if found is None:
            raise EnvironmentBuildError(f"python {path!r} is not an interpreter that can be run")
        return found

    def _search(self, version: str) -> Iterator[Interpreter]:
        shims = []
        any_real = False
        for path in _candidates(version):
            if is_script(path):
                shims.append(path)
            elif (found := self._probe(path)) is not None:
                any_real = any_real or _matches_version(found.version, version)
                yield found
        if not any_real:  # running a shim takes 0.1 s, and usually leads to one of those above
            yield from (found for path in shims if (found := self._probe(path)) is not None)

    def _probe(self, path: str) -> Interpreter | None:
        answer = self._probes.ask(path, ("-I", "-S", "-c", QUESTION))
        try:
            return None if answer is None else Interpreter(**json.loads(answer))
        except (ValueError, TypeError):
            return None


def describe_interpreters(found: Iterable[Interpreter]) -> str:
    """Versions and paths, for messages."""
    return ", ".join(f"{item.version} ({item.path})" for item in found) or "none at all"


def own_executable() -> str:
    """The real interpreter behind this process, never the virtual environment's link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _parse(wanted: str | None) -> str:
    if wanted is None:
        return ""
    match = _WANTED.fullmatch(wanted.strip())
    if match is None:
        raise EnvironmentBuildError(
            f"python {wanted!r} is not understood: give a version such as 3.11 or 3.11.7, or an absolute path"
        )
    return match[1]


def _matches_version(version: str, wanted: str) -> bool:
    return not wanted or f"{version}.".startswith(f"{wanted}.")


def _could_fit(hint: str, wanted: str) -> bool:
    """Whether a name that says ``hint`` can be ``wanted``: 3.11 may be 3.11.7, 3.1 is not 3.11."""
    return not hint or _matches_version(hint, wanted) or f"{wanted}.".startswith(f"{hint}.")


def _candidates(wanted: str) -> Iterator[str]:
    yield own_executable()
    for folder, pattern in _version_folders():
        for path in sorted(folder.glob(pattern)):
            numbers = _NUMBERS.search(path.parent.parent.name)
            if _could_fit(numbers[0] if numbers else "", wanted):
                yield str(path)
    names = {f"python3.{minor}": f"3.{minor}" for minor in _MINORS} | {"python3": "3", "python": ""}
    fitting = [name for name, hint in names.items() if _could_fit(hint, wanted)]
    for folder_name in os.environ.get("PATH", os.defpath).split(os.pathsep):
        programs = (f"{folder_name or '.'}/{name}" for name in fitting)
        yield from (program for program in programs if os.access(program, os.X_OK))


def _version_folders() -> Iterator[tuple[Path, str]]:
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    yield Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions", "*/bin/python"
    yield Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python"), "*/bin/python3"
