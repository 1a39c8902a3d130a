"""What a caller asks for: a name, manifests and options."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
    """An environment by its manifests.

    All of ``metadata`` is part of the fingerprint; three names have a meaning:

    - ``python``: a version (``3.11``, ``3.11.7``) or the absolute path of an interpreter
    - ``builder``: ``uv``, ``venv``, ``rattler``, ``micromamba``, ``mamba``, ``conda`` or ``hook`` instead of the
      one that the manifests call for
    - ``hook``: the shell command of the ``hook`` builder; it runs in the project root and finds the folder to fill in
      ``DEBUG_SERVER_ENV_PATH``, the interpreter in ``DEBUG_SERVER_ENV_PYTHON`` and the manifests, separated by
      colons, in ``DEBUG_SERVER_ENV_MANIFESTS``
    """

    name: str  # ``root/<name>`` will lead to the environment
    manifests: Sequence[str | os.PathLike[str]] | None = None
    metadata: Mapping[str, str] | None = None
    _: KW_ONLY
    project_root: str | os.PathLike[str] | None = None  # default: the repository around the manifests
    groups: Sequence[str] = ()  # dependency groups of pyproject.toml
    extras: Sequence[str] = ()  # optional dependencies of the project
    packages: Sequence[str] = ()  # further requirements, such as ``pytest>=8``
    detect: bool = False  # let the files in ``project_root`` say what is needed
    chosen: str | None = None  # why these manifests, if they were detected; for the record
