"""What bash evaluates in a script with a task's value: by the name of a variable it could come to the value.

One rule: what bash evaluates as code, as arithmetic or as the name of a variable is constant or a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from debug_server.tasks.bash_names import DECLARING, INTEGERS, PASSING, VARIABLES
from debug_server.tasks.shell_words import NAME, Evaluated, Word

_ASSIGNMENT = re.compile(rf"({NAME})(?:\[\d+\])?\+?=")
_NUMBER = re.compile(r"-?\d+|\{\d+\.\.\d+\}|\$[?#$!]|\$\{#[^}]*\}|\$\(\((?:[^()]|\([^()]*\))*\)\)")
# In arithmetic: blanks and operators, numbers, names with or without a $.
_TERM = re.compile(
    rf"\s|\\\n|[-+*/%<>=!&|^~?:,;()]|\$(?=\(\()|\$[?#$!]|\$\{{#{NAME}\}}|\d\w*(?:#\w*)?"
    rf"|\$?({NAME})|\$\{{({NAME})\}}"
)
_COMPARISONS = ("-eq", "-ne", "-lt", "-le", "-gt", "-ge")
_NAMED = ("-v", "-R")  # tests of a variable that is given by its name
_OTHER_CODE = frozenset({"alias", "bind", "compgen", "complete", "compopt", "enable", "fc", "let"})
_OWN = "HOST_RUNNER_"  # the names of the values in the environment


class Evaluation:
    """Collects what a script evaluates; Evaluated when it is neither constant nor a number.

    A variable is a number if the script assigns nothing else to it. That is known at the end: see ``uncertain``.
    """

    def __init__(self, code: Callable[[str], None]) -> None:
        self.code = code  # reads commands inside a word
        self._counted: set[str] = set()  # variables that bash evaluates as numbers
        self._set: set[str] = set()  # variables that may be something other than a number

    def include(self, inner: Evaluation) -> None:
        """What commands inside a word evaluate."""
        self._counted |= inner._counted
        self._set |= inner._set

    def uncertain(self) -> list[str]:
        """The variables that bash evaluates as numbers, and that may be something else."""
        other = self._set | (VARIABLES - INTEGERS)
        return sorted(name for name in self._counted if name in other or name.startswith(_OWN))

    def number(self, text: str) -> None:
        """Bash evaluates the text as arithmetic."""
        at = 0
        while at < len(text):
            if (found := _TERM.match(text, at)) is None:
                raise Evaluated(f"bash evaluates arithmetic ({text.strip()}): use numbers and variables with numbers")
            self._counted |= {name for name in found.groups() if name}
            at = found.end()

    def set(self, name: str) -> None:
        """The variable may be something other than a number."""
        self._set.add(name)

    def assign(self, assignments: Sequence[Word]) -> None:
        """Assignments to variables."""
        for word in assignments:
            found = _ASSIGNMENT.match(word.raw)
            if found is None or _is_number(word.raw[found.end() :]):
                continue
            if found[1] in INTEGERS or found[1] == "PS4":
                raise Evaluated(f"bash evaluates what is assigned to {found[1]}")
            self.set(found[1])

    def loop(self, variable: Word, words: Sequence[Word]) -> None:
        """A loop over words."""
        if not words or not all(_is_number(word.raw) for word in words):
            self.set(variable.raw)

    def condition(self, words: Sequence[Word]) -> None:
        """The words of ``[[ … ]]``."""
        for before, word in pairwise(words):
            if before.raw in _NAMED:
                _require_name(word)
            if before.raw in _COMPARISONS:
                self.number(word.raw.strip('"'))
            if word.raw in _COMPARISONS:
                self.number(before.raw.strip('"'))

    def builtin(self, name: str, arguments: Sequence[Word]) -> None:
        """A builtin that is not known to be harmless with these arguments."""
        match name:
            case "eval" | "trap":
                self._commands(name, arguments)
            case "." | "source":
                if not all(word.constant is not None or _is_path(word) for word in arguments[:1]):
                    raise Evaluated(f"{name} runs a file: write its name or a path")
            case "[" | "test":
                _check_test([word for word in arguments if word.constant != "]"])
            case _ if name in _OTHER_CODE or any(_evaluates(name, word) for word in arguments):
                raise Evaluated(f"{name} is a bash builtin that evaluates its arguments")
            case _ if name not in PASSING:
                for word in arguments:
                    if name not in DECLARING or word.array or not assigned_name(word.raw):
                        _require_name(word)
                    self._set |= set(re.findall(NAME, word.constant or ""))

    def _commands(self, name: str, arguments: Sequence[Word]) -> None:
        if any(word.constant is None for word in arguments):
            raise Evaluated(f"{name} is a bash builtin that evaluates its arguments: they must be constant")
        texts = [word.constant or "" for word in arguments]
        texts = texts[1:] if texts[:1] == ["--"] else texts
        self.code(" ".join(texts) if name == "eval" else "".join(texts[:1]))


def assigned_name(text: str) -> str | None:
    """The variable that is assigned by a word that is written like this."""
    found = _ASSIGNMENT.match(text)
    return found[1] if found else None


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text.strip('"')) is not None


def _is_path(word: Word) -> bool:
    return "/" in word.tail and not word.several


def _check_test(words: Sequence[Word]) -> None:
    for before, word in pairwise(words):
        if before.constant in _NAMED or (before.constant is None and len(words) == 2):
            _require_name(word)


def _evaluates(builtin: str, word: Word) -> bool:
    """Whether it is an option by which assignments to a variable are evaluated, or by which code is run."""
    options = "in" if builtin in DECLARING else "C" if builtin in ("mapfile", "readarray") else ""
    text = word.constant or ""
    return text[:1] in ("-", "+") and any(option in text for option in options)


def _require_name(word: Word) -> None:
    if word.constant is None or "[" in word.constant:
        raise Evaluated(f"bash may evaluate {word.raw} as the name of a variable: write a constant name")
