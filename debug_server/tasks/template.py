"""The shell executor's template: placeholders become references to variables, right for the quotes around them.

A value never becomes a part of the script, so nothing in it can be taken for one. Where bash would evaluate even a
variable's value as code (eval, arithmetic, the script of another shell) a placeholder is refused.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from debug_server.errors import ConfigurationError
from debug_server.tasks.shell_words import Char, Frame, Quoting, Scanner

VARIABLES = {"prompt": "HOST_RUNNER_PROMPT", "task_id": "HOST_RUNNER_TASK_ID", "run_id": "HOST_RUNNER_RUN_ID"}
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LITERAL = re.compile(r"\{(\{[A-Za-z_][A-Za-z0-9_]*\})\}")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_SUBSCRIPT = re.compile(r"[A-Za-z_]\w*\[[^\]]*$")
_SCRIPT_OPTION = re.compile(r"-\w*[ceErp]|--(?:eval|command|execute|print)")
_INTERPRETER = re.compile(
    r"(?:ba|da|a|z|k|mk|fi|c|tc)?sh|python[\d.]*|perl[\d.]*|ruby[\d.]*|node|deno|php|lua|su|runuser|script|psql|sqlite3"
)
_EVALUATING = frozenset({"eval", "source", ".", "trap", "let", "alias", "unset", "read", "mapfile", "readarray"})
_EVALUATING_TOO = frozenset({"getopts", "ssh", "watch", "parallel", "at", "batch", "complete", "bind", "wait"})
_DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly"})
_PREFIXES = frozenset(
    {"if", "then", "else", "elif", "while", "until", "do", "!", "{", "time", "exec", "command", "builtin", "nohup"}
    | {"sudo", "env", "nice", "coproc"}
)
_REFERENCES = {
    Quoting.BARE: '"${{{name}}}"',
    Quoting.DOUBLE: "${{{name}}}",
    Quoting.HEREDOC: "${{{name}}}",
    Quoting.SINGLE: "'\"${{{name}}}\"'",
    Quoting.ANSI: "'\"${{{name}}}\"$'",
}
_NO_REFERENCE = {
    Quoting.LITERAL_HEREDOC: "inside a here-document whose delimiter is quoted nothing is expanded: unquote it",
    Quoting.BACKQUOTES: "inside backquotes quoting is ambiguous: write $(…) instead",
    Quoting.ARITHMETIC: "inside arithmetic bash would evaluate the value as an expression",
    Quoting.PARAMETER: "inside ${…} quoting is ambiguous: assign it to a variable first",
    Quoting.CONDITION: "inside [[ … ]] bash may evaluate the value: use [ … ]",
}


def render(template: str) -> str:
    """The script of a template; ConfigurationError when a placeholder is unknown, or stands where it cannot be safe."""
    if "\0" in template:
        raise _refused("it holds a NUL character")
    scanner, pieces, copied = Scanner(template), [], 0
    for char in scanner:
        if char.text != "{":
            continue
        if literal := _LITERAL.match(template, char.start):
            pieces += [template[copied : char.start], literal[1]]
            copied = literal.end()
            scanner.skip(len(literal[0]), literal[1])
        elif (found := _PLACEHOLDER.match(template, char.start)) and not _is_parameter(template, char):
            pieces += [template[copied : char.start], _reference(found[1], char)]
            copied = found.end()
            scanner.skip(len(found[0]), found[0])
    if pieces and scanner.lost:
        raise _refused("`case` inside ( … ) or $( … ) is not understood beside a placeholder: put it into a function")
    _check_end(scanner)
    return "".join([*pieces, template[copied:]])


def _is_parameter(template: str, char: Char) -> bool:
    return char.start > 0 and template[char.start - 1] == "$" and char.frames[-1].quoting is not Quoting.BARE


def _reference(name: str, char: Char) -> str:
    if name not in VARIABLES:
        known = ", ".join(f"{{{item}}}" for item in VARIABLES)
        raise _refused(f"{{{name}}} is no placeholder: use {known}, or write {{{{{name}}}}} for the text {{{name}}}")
    quoting = char.frames[-1].quoting
    if quoting is Quoting.COMMENT:
        return f"{{{name}}}"
    for frame in char.frames:
        if (why := _NO_REFERENCE.get(frame.quoting)) is not None:
            raise _refused(f"{{{name}}}: {why}")
        if frame.quoting is Quoting.BARE and (why := _evaluated(frame)) is not None:
            raise _refused(f"{{{name}}}: {why}; read ${VARIABLES[name]} there, it is in the environment")
    return _REFERENCES[quoting].format(name=VARIABLES[name])


def _evaluated(frame: Frame) -> str | None:
    """Why a word of this command would be evaluated as code; None when it would not."""
    if _SUBSCRIPT.match(frame.word) and not _ASSIGNMENT.match(frame.word):
        return "a subscript is evaluated as an expression"
    words = [_plain(word) for word in frame.words]
    while words and (words[0] in _PREFIXES or _ASSIGNMENT.match(words[0])):
        words.pop(0)
    if not words:
        return None
    name = PurePosixPath(words[0]).name
    declares = name in _DECLARING and (not _ASSIGNMENT.match(frame.word) or "-i" in words)
    sets = name in ("printf", "test", "[") and words[-1] == "-v"
    if name in _EVALUATING or name in _EVALUATING_TOO or declares or sets:
        return f"{name} would evaluate the value as code"
    if _SCRIPT_OPTION.fullmatch(words[-1]) and any(_INTERPRETER.fullmatch(PurePosixPath(word).name) for word in words):
        return f"{words[-1]} takes a script, and the value would be a part of it"
    return None


def _plain(word: str) -> str:
    return re.sub(r"[\"'\\]", "", word)


def _check_end(scanner: Scanner) -> None:
    for frame in scanner.stack[1:]:
        if frame.quoting in (Quoting.COMMENT, Quoting.HEREDOC, Quoting.LITERAL_HEREDOC) and not frame.closer.strip():
            continue
        raise _refused(f"the end of what {_OPENERS.get(frame.quoting, 'is open')} is missing")


_OPENERS = {
    Quoting.DOUBLE: 'a " opened',
    Quoting.SINGLE: "a ' opened",
    Quoting.ANSI: "a $' opened",
    Quoting.BACKQUOTES: "a ` opened",
    Quoting.ARITHMETIC: "a (( opened",
    Quoting.PARAMETER: "a ${ opened",
    Quoting.CONDITION: "a [[ opened",
    Quoting.BARE: "a ( opened",
}


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(f"HOST_RUNNER_CMD_TEMPLATE is refused: {why}")
