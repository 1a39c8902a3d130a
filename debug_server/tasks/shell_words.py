"""Where in a bash script a place is: which quotes it is in, and of which command it is a word.

Only as much of bash as is needed to put a variable's reference at that place without changing what is around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

_SEPARATORS = ";&|\n"
_HEREDOC = re.compile(r"<<(-?)[ \t]*((?:\\.|'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|<>()'\"\\])+)")
_CONDITION = re.compile(r"\[\[(?=\s)")


class Quoting(Enum):
    """What surrounds a place."""

    BARE = auto()
    DOUBLE = auto()
    SINGLE = auto()
    ANSI = auto()  # $'…'
    HEREDOC = auto()
    LITERAL_HEREDOC = auto()  # with a quoted delimiter: nothing is expanded
    BACKQUOTES = auto()
    ARITHMETIC = auto()
    PARAMETER = auto()  # ${…}
    CONDITION = auto()  # [[ … ]]
    COMMENT = auto()


@dataclass(slots=True, kw_only=True)
class Frame:
    """One level of quoting or substitution."""

    quoting: Quoting
    closer: str = ""
    words: list[str] = field(default_factory=list)  # of the simple command, as far as it is read
    word: str = ""
    heredocs: list[tuple[str, bool, bool]] = field(default_factory=list)  # delimiter, literal, tabs stripped
    depth: int = 0  # of parentheses, in arithmetic
    cases: bool = False  # it has a ``case``, whose patterns end with unpaired parentheses

    def end_word(self) -> None:
        if self.word:
            self.cases |= self.word == "case"
            self.words.append(self.word)
            self.word = ""

    def end_command(self) -> None:
        self.end_word()
        self.words.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Char:
    """One character (or an escaped pair) and the frames it stands in, the innermost last."""

    start: int
    text: str
    frames: tuple[Frame, ...]


class Scanner:
    """Walks over a script; whoever iterates may ``skip`` what it has dealt with."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._at = 0
        self.stack = [Frame(quoting=Quoting.BARE)]
        self.lost = False  # whether a parenthesis was met that may or may not be the end of its frame

    def __iter__(self) -> Iterator[Char]:
        while self._at < len(self._script):
            start, frames = self._at, tuple(self.stack)
            yield Char(start=start, text=self._script[start], frames=frames)
            if self._at == start:
                self._step(self.stack[-1])

    def skip(self, count: int, word: str) -> None:
        """Go on behind a placeholder, which is a part of the word that it stands in."""
        self._at += count
        for frame in self.stack:
            frame.word += word

    def _take(self, count: int) -> str:
        text = self._script[self._at : self._at + count]
        self._at += count
        for frame in self.stack:
            frame.word += text
        return text

    def _push(self, quoting: Quoting, closer: str, opener: int) -> None:
        self._take(opener)
        self.stack.append(Frame(quoting=quoting, closer=closer))

    def _pop(self, closer: str) -> None:
        self.lost |= self.stack.pop().cases
        self._take(len(closer))

    def _sees(self, text: str) -> bool:
        return self._script.startswith(text, self._at)

    def _step(self, frame: Frame) -> None:
        match frame.quoting:
            case Quoting.BARE:
                self._bare(frame)
            case Quoting.SINGLE | Quoting.COMMENT | Quoting.LITERAL_HEREDOC:
                self._until(frame, escapes=False)
            case Quoting.ANSI:
                self._until(frame, escapes=True)
            case Quoting.ARITHMETIC:
                self._arithmetic(frame)
            case _:
                self._expanding(frame)

    def _until(self, frame: Frame, *, escapes: bool) -> None:
        if frame.closer and self._sees(frame.closer):
            if frame.quoting is Quoting.COMMENT:
                self.stack.pop()  # the line's end belongs to the command
            else:
                self._pop(frame.closer)
        else:
            self._take(2 if escapes and self._sees("\\") else 1)

    def _expanding(self, frame: Frame) -> None:
        """Double quotes, here-documents, backquotes, ${…}, [[ … ]]: where $ means something."""
        if frame.closer and self._sees(frame.closer):
            self._pop(frame.closer)
        elif self._sees("\\"):
            self._take(2)
        elif frame.quoting is Quoting.BACKQUOTES or not self._dollar():
            quoted = frame.quoting in (Quoting.PARAMETER, Quoting.CONDITION)
            if quoted and self._sees('"'):
                self._push(Quoting.DOUBLE, '"', 1)
            elif quoted and self._sees("'"):
                self._push(Quoting.SINGLE, "'", 1)
            else:
                self._take(1)

    def _arithmetic(self, frame: Frame) -> None:
        if not frame.depth and self._sees(frame.closer):
            self._pop(frame.closer)
            return
        frame.depth += self._sees("(") - self._sees(")")
        if not self._dollar():
            self._take(1)

    def _dollar(self) -> bool:
        """Enter a substitution, if here is one."""
        for opener, quoting, closer in (
            ("$((", Quoting.ARITHMETIC, "))"),
            ("$[", Quoting.ARITHMETIC, "]"),
            ("$(", Quoting.BARE, ")"),
            ("${", Quoting.PARAMETER, "}"),
            ("`", Quoting.BACKQUOTES, "`"),
        ):
            if self._sees(opener):
                self._push(quoting, closer, len(opener))
                return True
        return False

    def _bare(self, frame: Frame) -> None:
        if self._sees("\\"):
            self._take(2)
        elif self._opens_quotes() or self._opens_group(frame):
            pass
        elif frame.closer and self._sees(frame.closer):
            self._pop(frame.closer)
        elif not frame.word and self._sees("#"):
            self.stack.append(Frame(quoting=Quoting.COMMENT, closer="\n"))
        elif self._sees("<<") and not self._sees("<<<") and (found := _HEREDOC.match(self._script, self._at)):
            literal = any(mark in found[2] for mark in "'\"\\")
            frame.heredocs.append((re.sub(r"['\"\\]", "", found[2]), literal, bool(found[1])))
            self._at = found.end()
            frame.end_word()
        elif self._sees("<<<"):
            frame.end_word()
            self._at += 3
        else:
            self._plain(frame)

    def _opens_quotes(self) -> bool:
        for opener, quoting, closer in (
            ("$'", Quoting.ANSI, "'"),
            ('$"', Quoting.DOUBLE, '"'),
            ("'", Quoting.SINGLE, "'"),
            ('"', Quoting.DOUBLE, '"'),
        ):
            if self._sees(opener):
                self._push(quoting, closer, len(opener))
                return True
        return self._dollar()

    def _opens_group(self, frame: Frame) -> bool:
        if not frame.word and not frame.words and self._sees("(("):
            self._push(Quoting.ARITHMETIC, "))", 2)
        elif not frame.word and _CONDITION.match(self._script, self._at):
            self._push(Quoting.CONDITION, "]]", 2)
        elif self._sees("(") or self._sees("<(") or self._sees(">("):
            self._push(Quoting.BARE, ")", 1 if self._sees("(") else 2)
        else:
            return False
        return True

    def _plain(self, frame: Frame) -> None:
        char = self._script[self._at]
        if char in _SEPARATORS or char == ")":
            frame.end_command()
            self._at += 1
            if char == "\n" and frame.heredocs:
                self._heredoc_bodies(frame)
        elif char in " \t<>":
            frame.end_word()
            self._at += 1
        else:
            self._take(1)

    def _heredoc_bodies(self, frame: Frame) -> None:
        """The first of the bodies that follow; its end is the line that is its delimiter."""
        delimiter, literal, stripped = frame.heredocs.pop(0)
        indent = r"\t*" if stripped else ""
        end = re.compile(rf"^{indent}{re.escape(delimiter)}$", re.MULTILINE).search(self._script, self._at)
        closer = self._script[end.start() : end.end()] if end else ""
        quoting = Quoting.LITERAL_HEREDOC if literal else Quoting.HEREDOC
        if end is None or end.start() > self._at:
            # The delimiter alone could be a word of the body: with its line's end in front it cannot.
            self.stack.append(Frame(quoting=quoting, closer=f"\n{closer}" if closer else ""))
        else:
            self._at = end.end()
