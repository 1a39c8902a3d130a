"""The shell executor's template: placeholders become references to variables, quoted for their place.

A value never becomes part of the script. A placeholder is allowed where bash passes a word on unchanged (see
``shell_commands``) and refused everywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from debug_server.errors import ConfigurationError
from debug_server.tasks.shell_commands import Script
from debug_server.tasks.shell_words import Evaluated, NotUnderstood, Quoting

VARIABLES = {"prompt": "HOST_RUNNER_PROMPT", "task_id": "HOST_RUNNER_TASK_ID", "run_id": "HOST_RUNNER_RUN_ID"}
_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_BRACED = re.compile(rf"(?<!\$)(?:\{{(?P<literal>\{{{_NAME}\}})\}}|\{{(?P<name>{_NAME})\}})")
_LAST_ARGUMENT = "_"  # $_ is the last argument of the command before
_REFERENCES = {
    Quoting.BARE: '"${{{name}}}"',
    Quoting.DOUBLE: "${{{name}}}",
    Quoting.SINGLE: "'\"${{{name}}}\"'",
    Quoting.ANSI: "'\"${{{name}}}\"$'",
}


def render(template: str) -> str:
    """The script of a template; ConfigurationError if a placeholder is unknown or stands in an unsafe place."""
    if "\0" in template:
        raise _refused("it contains a NUL character")
    placeholders = [found for found in _BRACED.finditer(template) if found["name"]]
    if not placeholders:
        return _BRACED.sub(lambda found: found["literal"], template)
    script = _read(template, {found.start(): found.end() for found in placeholders})
    return _BRACED.sub(lambda found: found["literal"] or _replaced(found, script), template)


def _read(template: str, placeholders: dict[int, int]) -> Script:
    """Read the template repeatedly, until no more variables and functions are found that contain a value."""
    variables, functions = {_LAST_ARGUMENT}, set[str]()
    while True:
        try:
            script = Script(template, placeholders, variables, functions)
        except Evaluated as why:
            raise _refused(f"{why}; {_INSTEAD}") from None
        except NotUnderstood as why:
            raise _refused(f"its bash syntax is wrong or not supported: {why}") from None
        if script.assigned <= variables and script.value_functions <= functions:
            break
        variables |= script.assigned
        functions |= script.value_functions
    if both := sorted(script.receivers & script.defined):
        raise _refused(f"{both[0]} is a function or an alias, and may evaluate the value; {_INSTEAD}")
    for name in variables:
        for found in re.finditer(rf"(?<![A-Za-z0-9_]){name}(?![A-Za-z0-9_])", template):
            if not _within(found.start(), [*script.reader.approved, *script.comments]):
                raise _refused(
                    f"the variable {name} contains a value and is used where bash may evaluate it; {_INSTEAD}"
                )
    if uncertain := script.evaluation.uncertain():
        raise _refused(
            f"bash evaluates the variable {uncertain[0]} as a number, and it may be something else: assign numbers only"
        )
    return script


def _replaced(found: re.Match[str], script: Script) -> str:
    name, start = found["name"], found.start()
    if _within(start, script.comments):
        return found[0]
    if name not in VARIABLES:
        known = ", ".join(f"{{{item}}}" for item in VARIABLES)
        raise _refused(f"{{{name}}} is not a placeholder: use {known}, or write {{{{{name}}}}} for the text {{{name}}}")
    if not _within(start, script.reader.approved):
        covering = [item for item in script.reader.reasons if item[0] <= start < item[1]]
        why = (
            min(covering, key=lambda item: item[1] - item[0])[2] if covering else "it is not the argument of a command"
        )
        raise _refused(f"{{{name}}}: {why}; {_INSTEAD}")
    if start not in script.reader.found:
        return found[0]  # its brace is escaped
    return _REFERENCES[script.reader.found[start]].format(name=VARIABLES[name])


def _within(place: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(start <= place < end for start, end in ranges)


_INSTEAD = "pass it to a program as an argument (the value is also in the environment: see Templates in docs/tasks.md)"


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(f"HOST_RUNNER_CMD_TEMPLATE is refused: {why}")
