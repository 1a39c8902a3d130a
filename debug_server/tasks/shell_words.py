"""Reads the words of a bash script: their quotes, their constant text, and the places of a task's value in them.

Arithmetic, ``${…}``, backquotes and here-documents are no part of a word; what bash evaluates in them is reported.
Syntax that the reader does not understand raises ``NotUnderstood``; it never guesses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
ASSIGNMENT = re.compile(rf"({NAME})\+?=")
BLANKS = " \t"
ENDS_WORD = " \t\n;&|()<>"
_VARIABLE = re.compile(rf"\$(?:({NAME}|[0-9@*#?$!-])|\{{({NAME})\}})")
# Before the word of ${…}: it is a parameter, an element with a constant subscript, or a length; not ${!…} or ${x@P}.
_PARAMETER = re.compile(
    rf"#?(?:(?P<name>{NAME})|\d+|[@*#?$-])(?:\[(?:[@*]|\d+|\$?(?P<subscript>{NAME}))\])?"
    r"(?:(?=\})|:? ?-?\d+(?::-?\d+)?(?=\})|(?P<sets>:?=)|:?[-+?]|##?|%%?|//?|\^\^?|,,?|@Q(?=\}))"
)
_PATTERN = "*?[]{}"  # outside quotes: may become several words
_FIXED = ("[", "]", "[[", "]]", "{", "}", "{}")  # whole words that stay as they are
_ONE_WORD = ("HOME", "PWD")  # paths: taken to have no blanks, as in `$HOME/bin/agent`


class NotUnderstood(Exception):
    """The script is wrong, or has syntax that this reader does not understand."""


class Evaluated(NotUnderstood):
    """Bash may evaluate a value at its place."""


class Quoting(Enum):
    """The quotes around a placeholder."""

    BARE = auto()
    DOUBLE = auto()
    SINGLE = auto()
    ANSI = auto()  # $'…'


@dataclass(slots=True, kw_only=True)
class Word:
    """One word; ``has_value`` is true if it contains a task's value."""

    start: int
    end: int = 0
    raw: str = ""  # as it is written
    constant: str | None = ""  # its text without quotes; None if it has expansions
    lead: str = ""  # its constant beginning
    tail: str = ""  # its constant text after the last expansion
    has_value: bool = False
    loose: bool = False  # the value is outside quotes: bash may split it
    several: bool = False  # an expansion outside quotes may make it several words, or none
    array: bool = False  # NAME=( … )
    text: list[tuple[int, int]] = field(default_factory=list)  # where bash expands nothing but plain references

    def add_constant(self, text: str) -> None:
        """Append constant text."""
        self.tail += text
        if self.constant is not None:
            self.constant = self.lead = self.constant + text

    def add_expansion(self, *, several: bool) -> None:
        """Append an expansion."""
        self.constant, self.tail = None, ""
        self.several |= several


class Evaluations(Protocol):
    """Is told what bash evaluates; raises Evaluated if that may come to a value."""

    def number(self, text: str) -> None:
        """This text, as arithmetic."""

    def code(self, text: str) -> None:
        """This text, as commands."""

    def set(self, name: str) -> None:
        """The variable may be something other than a number."""


class Reader:
    """A position in a script, and how to read a word there; ``commands`` reads the list inside ``$( … )``."""

    def __init__(
        self, script: str, placeholders: Mapping[int, int], values: Collection[str], evaluation: Evaluations
    ) -> None:
        self.script = script
        self.at = 0
        self.found: dict[int, Quoting] = {}  # placeholders in words, by position
        self.approved: list[tuple[int, int]] = []
        self.reasons: list[tuple[int, int, str]] = []  # why nothing between two positions can be approved
        self.heredocs: list[tuple[str, bool, bool]] = []  # begin after this line: delimiter, literal, tabs stripped
        self.commands: Callable[[str], bool] = lambda _until: False
        self._evaluation = evaluation
        self._placeholders = placeholders
        self._values = values  # variables that hold a task's value

    def line_ends(self) -> None:
        """A line ends inside a construct: refuse here-documents that would begin after it."""
        if self.heredocs:
            raise NotUnderstood("a here-document whose line ends inside another construct")

    def sees(self, *texts: str) -> bool:
        """Whether one of the texts is next."""
        return self.script.startswith(texts, self.at)

    def char(self) -> str:
        """The next character; empty at the end."""
        return self.script[self.at : self.at + 1]

    def blanks(self) -> None:
        """Skip blanks and line continuations."""
        while self.char() and (self.char() in BLANKS or self._continuation()):
            self.at += 1

    def word(self) -> Word:
        """The word that begins here."""
        word = Word(start=self.at)
        while self.char() and (self.char() not in ENDS_WORD or self._joins(word)):
            self._piece(word)
        word.end = self.at
        word.raw = self.script[word.start : word.end]
        if word.raw in _FIXED:
            word.constant, word.several = word.raw, False
        return word

    @contextmanager
    def refusing(self, why: str) -> Iterator[None]:
        """Approve nothing that is read in the block."""
        start, kept = self.at, len(self.approved)
        yield
        del self.approved[kept:]
        self.reasons.append((start, self.at, why))

    def _joins(self, word: Word) -> bool:
        array = self.char() == "(" and ASSIGNMENT.fullmatch(self.script, word.start, self.at) is not None
        return array or self.sees("<(", ">(")

    def _piece(self, word: Word) -> None:
        match self.char():
            case "(":
                self._array(word)
            case "<" | ">":
                word.add_expansion(several=False)
                word.has_value |= self._substitution(2)
            case "\\":
                self._escaped(word)
            case "'":
                self._single(word)
            case '"':
                self._double(word)
            case "$":
                self._dollar(word, quoted=False)
            case "`":
                self._backquotes(word, quoted=False)
            case char if not self._placeholder(word, Quoting.BARE):
                if char in _PATTERN or (char == "~" and self.at == word.start):
                    word.add_expansion(several=char != "~")
                self._plain(word, 1)

    def _plain(self, word: Word, count: int, text: str | None = None) -> None:
        taken = self.script[self.at : self.at + count]
        if "\n" in taken:
            self.line_ends()
        word.text.append((self.at, self.at + count))
        word.add_constant(taken if text is None else text)
        self.at += count

    def _placeholder(self, word: Word, quoting: Quoting) -> bool:
        end = self._placeholders.get(self.at)
        if end is None:
            return False
        self.found[self.at] = quoting
        word.text.append((self.at, end))
        word.add_expansion(several=False)
        word.has_value = True
        self.at = end
        return True

    def _escaped(self, word: Word) -> None:
        if self.at + 1 >= len(self.script):
            raise NotUnderstood("it ends with a backslash")
        if self._continuation():
            self.at += 1
        else:
            self._plain(word, 2, self.script[self.at + 1])

    def _continuation(self) -> bool:
        """Step onto the newline of a line continuation, if it cannot join the text around it."""
        if not self.sees("\\\n"):
            return False
        before, after = self.script[: self.at][-2:], self.script[self.at + 2 : self.at + 3]
        apart = not before or before[-1] in " \t\n" or before in ("&&", "||")
        if not apart and not (after in ("", " ", "\t") and before[-1] not in "$(<>&|;{[`\\"):
            raise NotUnderstood("a line that is continued inside a word: put a blank in front of its backslash")
        self.at += 1
        return True

    def _single(self, word: Word) -> None:
        end = self.script.find("'", self.at + 1)
        if end < 0:
            raise NotUnderstood("a closing ' is missing")
        self.at += 1
        while self.at < end:
            if not self._placeholder(word, Quoting.SINGLE):
                self._plain(word, 1)
        self.at += 1

    def _ansi(self, word: Word) -> None:
        self.at += 2
        word.add_expansion(several=False)
        while not self.sees("'"):
            if not self.char():
                raise NotUnderstood("the closing ' of $' is missing")
            if not self._placeholder(word, Quoting.ANSI):
                self._plain(word, 2 if self.sees("\\") else 1, "")
        self.at += 1

    def _double(self, word: Word) -> None:
        self.at += 1
        while not self.sees('"'):
            match self.char():
                case "":
                    raise NotUnderstood('a closing " is missing')
                case "\\" if self.sees("\\\n"):
                    if self.script[self.at - 1] == "$":
                        raise NotUnderstood("a $ at the end of a line that is continued")
                    self.at += 2
                case "\\":
                    pair = self.script[self.at : self.at + 2]
                    self._plain(word, 2, pair[1:] if pair[1:] in '$"\\`' else pair)
                case "$":
                    self._dollar(word, quoted=True)
                case "`":
                    self._backquotes(word, quoted=True)
                case _ if not self._placeholder(word, Quoting.DOUBLE):
                    self._plain(word, 1)
        self.at += 1

    def _dollar(self, word: Word, *, quoted: bool) -> None:
        if not quoted and self.sees("$'"):
            self._ansi(word)
        elif not quoted and self.sees('$"'):
            self.at += 1
            word.add_expansion(several=False)
            self._double(word)
        elif self.sees("$((", "$["):
            word.add_expansion(several=not quoted)
            with self.refusing("bash evaluates arithmetic"):
                self.at += 2
                self.arithmetic("]" if self.script[self.at - 1] == "[" else ")")
        elif self.sees("$("):
            word.add_expansion(several=not quoted)
            if self._substitution(2):
                word.has_value = True
                word.loose |= not quoted
        elif found := _VARIABLE.match(self.script, self.at):
            self._variable(word, found[1] or found[2], found.end(), quoted=quoted)
        elif self.sees("${"):
            word.add_expansion(several=not quoted)
            with self.refusing("bash evaluates what is inside ${…}"):
                self.at += 2
                self._braces(quoted=quoted)
        else:
            self._plain(word, 1)

    def _variable(self, word: Word, name: str, end: int, *, quoted: bool) -> None:
        word.add_expansion(several=not quoted and name not in _ONE_WORD)
        word.text.append((self.at, end))
        self.at = end
        if name in self._values:
            word.has_value = True
            word.loose |= not quoted

    def _substitution(self, opener: int) -> bool:
        if self.heredocs:
            raise NotUnderstood("a substitution in the line of a here-document")
        self.at += opener
        return self.commands(")")

    def _backquotes(self, word: Word, *, quoted: bool) -> None:
        word.add_expansion(several=not quoted)
        with self.refusing("bash reads backquotes twice: write $(…)"):
            found = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL).match(self.script, self.at)
            if found is None:
                raise NotUnderstood("the end of what a ` opened is missing")
            if "\n" in found[0]:
                self.line_ends()
            self.at = found.end()
            self._evaluation.code(re.sub(r"\\([$`\\])", r"\1", found[0][1:-1]))

    def arithmetic(self, closer: str) -> None:
        """Read an expression, from behind its first parenthesis or bracket."""
        depth, start = 1, self.at
        while depth:
            self._expression("arithmetic")
            opened, closed = self.sees("(" if closer == ")" else "["), self.sees(closer)
            depth += opened - closed
            if closer == ")" and closed and depth == 1 and not self.sees("))"):
                raise NotUnderstood("(( … ) … ): write a blank between the parentheses of nested commands")
            self.at += 1
        self._evaluation.number(self.script[start : self.at - 1])

    def _braces(self, *, quoted: bool) -> None:
        found = _PARAMETER.match(self.script, self.at)
        if found is None:
            raise Evaluated("bash evaluates what is inside ${…}: use a plain variable")
        if found["subscript"]:
            self._evaluation.number(found["subscript"])
        if found["sets"] and found["name"]:
            self._evaluation.set(found["name"])
        self.at = found.end()
        while not self.sees("}"):
            if not quoted and self.sees('"'):
                self._double(Word(start=self.at))
                continue
            self._expression("${…}")
            if not self.sees("}"):
                self.at += 1
        self.at += 1

    def _expression(self, what: str) -> None:
        """Pass over the expansions that are next in arithmetic or braces, where quotes have rules of their own."""
        while self.sees("$", "`"):
            if self.sees("$"):
                self._dollar(Word(start=self.at), quoted=True)
            else:
                self._backquotes(Word(start=self.at), quoted=True)
        if not self.char():
            raise NotUnderstood(f"the end of {what} is missing")
        if self.char() == "\n":
            self.line_ends()
        if self.char() in "'\"\\":
            raise NotUnderstood(f"quotes inside {what}")

    def _array(self, word: Word) -> None:
        word.array = True
        word.add_expansion(several=True)
        with self.refusing("bash evaluates the subscripts of an array"):
            self.at += 1
            while not self.sees(")"):
                if not self.char() or self.char() in ";&|(" or (self.char() in "<>" and not self.sees("<(", ">(")):
                    raise NotUnderstood("the end of an array is missing")
                if self.char() == "\n":
                    self.line_ends()
                if self.char() in " \t\n":
                    self.at += 1
                elif self.sees("#"):
                    raise NotUnderstood("a comment inside an array")
                elif self.sees("[") and not re.compile(r"\[\d+\]\+?=").match(self.script, self.at):
                    raise Evaluated("bash evaluates the subscripts of an array: use numbers")
                else:
                    word.has_value |= self.word().has_value
        self.at += 1
