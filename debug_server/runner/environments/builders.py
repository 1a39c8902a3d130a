"""Chooses the builder of a request: the one that it names, else the one for its manifests."""

from __future__ import annotations

import importlib.util
import shutil

from debug_server.errors import EnvironmentBuildError
from debug_server.model.extras import install_command
from debug_server.runner.environments.build_plan import Builder
from debug_server.runner.environments.hook_builder import HookBuilder
from debug_server.runner.environments.manifests import ManifestKind, ManifestSet
from debug_server.runner.environments.probes import ProbeCache
from debug_server.runner.environments.request import EnvironmentRequest
from debug_server.runner.environments.uv_builder import UvBuilder, find_uv
from debug_server.runner.environments.venv_builder import VenvBuilder

CONDA_PROGRAMS = ("micromamba", "mamba", "conda")
_CONDA = (ManifestKind.CONDA, ManifestKind.CONDA_EXPLICIT)
_SUPPORTED = "requirements*.txt, constraints*.txt, pyproject.toml, uv.lock, environment.yml, an @EXPLICIT list"
_DETECTED = "leave manifests out, and it is read with the project's other files"
_PIXI = "`pixi workspace export conda-environment environment.yml` writes one that is"
_INSTEAD = {
    "pixi.toml": _PIXI,
    "pixi.lock": _PIXI,
    "poetry.lock": "name pyproject.toml, or what `poetry export -o requirements.txt` writes",
    "pdm.lock": "name pyproject.toml, or what `pdm export -o requirements.txt` writes",
    "Pipfile.lock": "name what `pipenv requirements > requirements.txt` writes",
    "Pipfile": _DETECTED,
    "tox.ini": _DETECTED,
    "tox.toml": _DETECTED,
    "noxfile.py": "name the requirements files that it installs",
    "package.json": "it is for Node: begin the command with `npm ci`",
}
_CHOICES = ("uv", "venv", "rattler", *CONDA_PROGRAMS, "hook")


def choose_builder(request: EnvironmentRequest, manifests: ManifestSet, probes: ProbeCache) -> Builder:
    """The builder for ``request``, or EnvironmentBuildError when none fits."""
    metadata = request.metadata or {}
    wanted = metadata.get("builder") or ("hook" if "hook" in metadata else None)
    if wanted is not None:
        return _named(wanted, metadata.get("hook"), probes)
    if other := manifests.of(ManifestKind.OTHER):
        if (instead := _INSTEAD.get(other[0].name)) is not None:
            raise EnvironmentBuildError(f"manifest {other[0].name!r} is not supported: {instead}")
        raise EnvironmentBuildError(
            f"manifest {str(other[0])!r} is not supported: use one of {_SUPPORTED}. "
            'For others, from Python: EnvironmentRequest(metadata={"hook": "… fills $DEBUG_SERVER_ENV_PATH"})'
        )
    if not manifests.of(*_CONDA):
        return _uv(probes) or VenvBuilder()
    if len(manifests.files) > 1:
        raise EnvironmentBuildError("conda manifests cannot be mixed with others: list pip packages under `pip:`")
    return _rattler(probes) or _conda_program(CONDA_PROGRAMS, probes)


def _named(wanted: str, hook: str | None, probes: ProbeCache) -> Builder:
    if wanted == "hook":
        if not hook:
            raise EnvironmentBuildError('builder "hook" needs its command in metadata["hook"]')
        return HookBuilder(command=hook)
    if wanted in CONDA_PROGRAMS:
        return _conda_program((wanted,), probes)
    if wanted not in _CHOICES:
        raise EnvironmentBuildError(f"builder {wanted!r} does not exist: use one of {', '.join(_CHOICES)}")
    found = VenvBuilder() if wanted == "venv" else _uv(probes) if wanted == "uv" else _rattler(probes)
    if found is None:
        raise EnvironmentBuildError(f"builder {wanted!r} is not installed: install it, or do not name a builder")
    return found


def _uv(probes: ProbeCache) -> UvBuilder | None:
    program = find_uv()
    version = None if program is None else probes.ask(program, ("--version",))
    return None if program is None or version is None else UvBuilder(program=program, tool=version)


def _rattler(probes: ProbeCache) -> Builder | None:
    if importlib.util.find_spec("rattler") is None:
        return None
    # Imported here: YAML and asyncio would double the time to load this package for callers that need no conda.
    from importlib.metadata import version

    from debug_server.runner.environments.conda_builders import RattlerBuilder

    return RattlerBuilder(tool=f"py-rattler {version('py-rattler')}", uv=_uv(probes))


def _conda_program(names: tuple[str, ...], probes: ProbeCache) -> Builder:
    from debug_server.runner.environments.conda_builders import CondaProgramBuilder

    found = [(name, program) for name in names if (program := shutil.which(name)) is not None]
    if not found:
        raise EnvironmentBuildError(
            f"conda manifests need py-rattler or one of {', '.join(names)}: {install_command('conda')}"
        )
    name, program = found[0]
    version = probes.ask(program, ("--version",)) or "of unknown version"
    return CondaProgramBuilder(name=name, program=program, tool=f"{name} {version}")
