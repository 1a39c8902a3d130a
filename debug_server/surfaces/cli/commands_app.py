"""The base of every module's commands: help as plain text, with the options under headings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

F = TypeVar("F", bound=Callable[..., Any])


class CommandsApp(typer.Typer):
    """A module's commands. Their help is the same in a terminal and in a pipe, and loads no library to draw boxes."""

    def __init__(self, *, help: str | None = None, no_args_is_help: bool = False) -> None:
        super().__init__(help=help, no_args_is_help=no_args_is_help, add_completion=False, rich_markup_mode=None)

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Declare a command."""
        return super().command(name, **{"cls": _PlainCommand, **options})


class _PlainCommand(TyperCommand):
    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, options, then the options of each panel, in the order of their first option."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
