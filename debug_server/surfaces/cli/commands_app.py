"""The base of every module's commands: help as plain text, with the options under headings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

_UsageError: Any = typer.BadParameter.__base__  # which typer does not name
_NO_NUMBER = re.compile(r"^(.*) is not a valid int(?:eger)?(?: range)?\.$", re.DOTALL)

_RANGE = re.compile(r"(?:; )?(?:\d+<=)?x[<>]=\d+(?=\])")  # a wrong value is answered with it

F = TypeVar("F", bound=Callable[..., Any])


class CommandsApp(typer.Typer):
    """A module's commands. Their help is the same in a terminal and in a pipe, and loads no library to draw boxes."""

    def __init__(self, *, help: str | None = None, no_args_is_help: bool = False) -> None:
        super().__init__(help=help, no_args_is_help=no_args_is_help, add_completion=False, rich_markup_mode=None)

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Declare a command."""
        return super().command(name, **{"cls": _PlainCommand, **options})


class _PlainCommand(TyperCommand):
    """A command whose options are named after what they take, such as ``--commit COMMIT`` and ``--tls-key KEY``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for parameter in self.params:
            if parameter.metavar is None and parameter.param_type_name == "option" and not _has_own_words(parameter):
                parameter.metavar = max(parameter.opts, key=len).rpartition("-")[2].upper()
            elif parameter.metavar is None and parameter.param_type_name == "argument":
                parameter.metavar = str(parameter.name).upper() + ("..." if parameter.nargs == -1 else "")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; a number that is none is refused in plain words."""
        given = list(args)  # the parser takes words out of the list
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _NO_NUMBER.sub(r"\1 is not a whole number, such as 10.", error.message)
            raise
        except _UsageError as error:
            runs_a_program = any(str(parameter.metavar).startswith("-- ") for parameter in self.params)
            if hasattr(error, "option_name") and runs_a_program and "--" not in given:
                error.message += ". If it is an option of the program that you run, write -- before the program."
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, options, then the options of each panel, in the order of their first option."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
                words = (record[0], _RANGE.sub("", record[1]).replace(" []", ""))
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(words)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _has_own_words(parameter: Any) -> bool:
    """A flag takes no value, and the values of a choice are its metavar."""
    return bool(getattr(parameter, "is_flag", False)) or hasattr(parameter.type, "choices")
