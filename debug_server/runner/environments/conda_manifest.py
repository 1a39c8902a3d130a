"""Reads conda's two manifests: environment.yml and the @EXPLICIT list of package URLs."""

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
    """The content of an environment.yml; EnvironmentBuildError if the text is not one."""
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise EnvironmentBuildError(f"the conda manifest is not YAML: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("dependencies"), list):
        raise EnvironmentBuildError("the conda manifest has no list of `dependencies`")
    channels = tuple(name for name in _texts(data.get("channels") or [], "channels") if name != "nodefaults")
    specs = tuple(item for item in data["dependencies"] if isinstance(item, str))
    pip = [line for item in data["dependencies"] if isinstance(item, dict) for line in _pip_section(item)]
    return CondaEnvironment(channels=channels or _DEFAULT_CHANNELS, specs=specs, pip=tuple(pip))


def _pip_section(item: dict[object, object]) -> Sequence[str]:
    if set(item) != {"pip"}:
        names = ", ".join(str(name)[:80] for name in list(item)[:5] if isinstance(name, str | int | float))
        raise EnvironmentBuildError(
            f"the conda manifest's dependency {names!r} is not understood: only `pip:` can nest"
        )
    return _texts(item["pip"], "pip")


def _texts(values: object, what: str) -> list[str]:
    """A list of strings and numbers, as strings.

    The error does not print other values: ten YAML aliases can stand for 10^10 words.
    """
    if not isinstance(values, list) or not all(isinstance(value, str | int | float) for value in values):
        raise EnvironmentBuildError(f"the conda manifest's `{what}` must be a list of strings")
    return [str(value) for value in values]


def parse_explicit(text: str) -> list[str]:
    """The package addresses of an ``@EXPLICIT`` list, with their ``#hash``."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "@"))]
