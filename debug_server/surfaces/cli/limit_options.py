"""The options that bound a command, made from the table of limits for every command line that runs one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from debug_server.errors import InvalidInputError
from debug_server.model import LEVELS, LIMITS, NETWORKS, Limit, Limits, Unit
from debug_server.model.isolation import Level, Network
from debug_server.surfaces.cli.words import seconds, size

R = TypeVar("R")
PANEL = "Limits"
Require = Annotated[
    list[str] | None,
    typer.Option(metavar="LIMIT", help="refuse to start unless this limit or level is in force", rich_help_panel=PANEL),
]
_ISOLATION_PANEL = "Isolation"
_LEVEL = typer.Option(
    metavar="LEVEL", help=f"{' | '.join(LEVELS)}; default: by where it runs", rich_help_panel=_ISOLATION_PANEL
)
_NETWORK = typer.Option(
    metavar="POLICY", help=f"{' | '.join(NETWORKS)}; default: open", rich_help_panel=_ISOLATION_PANEL
)
_ISOLATION = {"isolation": Annotated[str | None, _LEVEL], "network": Annotated[str | None, _NETWORK]}
_METAVARS = {Unit.BYTES: "SIZE", Unit.COUNT: "N", Unit.CORES: "CORES", Unit.SECONDS: "TIME"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """The options as they were given."""

    given: Mapping[str, Any]
    isolation: Level | None = None
    network: Network | None = None

    def limits(self) -> Limits:
        """What they ask for; InvalidInputError for a value that no limit can have."""
        return Limits(**{name: _value(LIMITS[name], given) for name, given in self.given.items()})


NO_LIMITS = LimitOptions(given={})


def with_limits(command: Callable[..., R]) -> Callable[..., R]:
    """Replace a command's parameter ``limit_options``, a ``LimitOptions``, by options for each limit and isolation."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += _parameters() if parameter.name == "limit_options" else [parameter]

    def called(**given: Any) -> R:
        asked = {limit.name: given.pop(limit.setting) for limit in LIMITS.values()}
        isolation = {name: given.pop(name) for name in _ISOLATION}
        return command(limit_options=LimitOptions(given=asked, **isolation), **given)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # what typer reads
    called.__annotations__ = {item.name: item.annotation for item in parameters}
    return called


def _parameters() -> list[inspect.Parameter]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    isolation = [inspect.Parameter(name, kind, default=None, annotation=found) for name, found in _ISOLATION.items()]
    return [*map(_parameter, LIMITS.values()), *isolation]


def _parameter(limit: Limit) -> inspect.Parameter:
    kind: Any = {Unit.COUNT: int, Unit.CORES: float}.get(limit.unit, str)
    option = typer.Option(f"--{limit.option}", metavar=_METAVARS[limit.unit], help=_help(limit), rich_help_panel=PANEL)
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(
        limit.setting, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation
    )


def _help(limit: Limit) -> str:
    example = "90 or 15m" if limit.unit is Unit.SECONDS else limit.example
    return f"{limit.phrase}, such as {example}" if limit.unit in (Unit.BYTES, Unit.SECONDS) else limit.phrase


def _number(limit: Limit, given: Any) -> Any:
    if limit.unit is Unit.BYTES:
        return size(given, flag=f"--{limit.option}")
    if limit.unit is not Unit.SECONDS:
        return given
    try:
        return float(given)  # also a negative one: the table says what is wrong with it
    except ValueError:
        return seconds(given, flag=f"--{limit.option}")


def _value(limit: Limit, given: Any) -> Any:
    """The value of an option; an error names the option and what was typed."""
    if given is None or given == "":
        return None
    typed = given if isinstance(given, str) else f"{given:g}"
    value = _number(limit, given)
    if fault := limit.why_invalid(value):
        raise InvalidInputError(f"--{limit.option} {typed} {fault}")
    return value
