"""Reading conda's two manifests: environment.yml and the explicit list of package addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from debug_server.errors import EnvironmentBuildError

_DEFAULT_CHANNELS = ("conda-forge",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CondaEnvironment:
    """What an environment.yml asks for."""

    channels: tuple[str, ...]
    specs: tuple[str, ...]
    pip: tuple[str, ...]  # lines for pip, installed after the packages of the channels


def parse_environment(text: str) -> CondaEnvironment:
    """The content of an environment.yml; anything that is not one is an EnvironmentBuildError."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise EnvironmentBuildError(f"the conda manifest is not YAML: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("dependencies"), list):
        raise EnvironmentBuildError("the conda manifest has no list of `dependencies`")
    channels = tuple(str(name) for name in data.get("channels") or () if name != "nodefaults")
    specs = tuple(item for item in data["dependencies"] if isinstance(item, str))
    pip = [line for item in data["dependencies"] if isinstance(item, dict) for line in _pip_section(item)]
    return CondaEnvironment(channels=channels or _DEFAULT_CHANNELS, specs=specs, pip=tuple(pip))


def _pip_section(item: dict[object, object]) -> Sequence[str]:
    lines = item.get("pip")
    if set(item) != {"pip"} or not isinstance(lines, list):
        raise EnvironmentBuildError(f"the conda manifest's dependency {item!r} is not understood: only `pip:` can nest")
    return [str(line) for line in lines]


def parse_explicit(text: str) -> list[str]:
    """The package addresses of an ``@EXPLICIT`` list, with their ``#hash``."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "@"))]
