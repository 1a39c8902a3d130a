"""The options of the command line that say in which environment a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from debug_server.model import EnvironmentPlan

PANEL = "Environment"
Manifests = Annotated[
    list[str] | None,
    typer.Option(
        "--manifest",
        metavar="FILE",
        help="install from this file of the repository; may be repeated; none: only Python; default: detected",
        rich_help_panel=PANEL,
    ),
]
Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="VERSION",
        help="the Python version, such as 3.12; system: no environment",
        rich_help_panel=PANEL,
    ),
]
Extras = Annotated[
    list[str] | None,
    typer.Option(
        "--extra",
        metavar="NAME",
        help="also install these optional dependencies of pyproject.toml",
        rich_help_panel=PANEL,
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group", metavar="NAME", help="also install this dependency group of pyproject.toml", rich_help_panel=PANEL
    ),
]


def wanted_environment(
    manifest: list[str] | None, python: str | None, extra: list[str] | None, group: list[str] | None
) -> EnvironmentPlan | None:
    """The environment plan of the options; None if no option is given."""
    return EnvironmentPlan.of(manifests=manifest or [], python=python, extras=extra or [], groups=group or [])
