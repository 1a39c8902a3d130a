"""The options of the command line that say in which environment a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.model import EnvironmentPlan

Manifests = Annotated[list[str] | None, typer.Option("--manifest", help="a manifest, such as pyproject.toml")]
Python = Annotated[str | None, typer.Option("--python", help="the environment's Python version")]
Extras = Annotated[list[str] | None, typer.Option("--extra", help="optional dependencies of pyproject.toml, by name")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="a dependency group of pyproject.toml, by name")]


def wanted_environment(
    manifest: list[str] | None, python: str | None, extra: list[str] | None, group: list[str] | None
) -> EnvironmentPlan | None:
    """The environment plan of the options; None if no option is given."""
    return EnvironmentPlan.of(manifests=manifest or [], python=python, extras=extra or [], groups=group or [])
