"""Finds the words of a bash script that may contain a task's value: arguments of commands that do not evaluate them.

A parser for a subset of bash's commands. A word is approved if bash passes it on unchanged: to a program, to one of a
few builtins, as a file name, or to a variable all of whose uses are approved. Everything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from debug_server.tasks.bash_names import BUILTINS, DECLARING, KEYWORDS, VARIABLES
from debug_server.tasks.shell_evaluation import Evaluation, assigned_name
from debug_server.tasks.shell_words import ASSIGNMENT, NAME, Evaluated, NotUnderstood, Reader, Word

_TOKEN = re.compile(r";;&|;;|;&|[()]|[^ \t\n;&|()<>]+")
_FUNCTION = re.compile(rf"({NAME}|[^ \t\n;&|()<>$'\"\\`{{}}=]+)[ \t]*\([ \t]*\)")
_REDIRECTION = re.compile(r"\d*(&>>|&>|<<<|<<-|<<|<>|>>|>\||>&|<&|<(?!\()|>(?!\())")
_HEREDOC = re.compile(r"[ \t]*((?:\\[^\n]|'[^'\n]*'|\"[^\"\n$`\\]*\"|[^ \t\n;&|<>()'\"\\$`])+)")
_OUTPUT = frozenset({">", ">>", ">|", "&>", "&>>"})
_TARGETS = _OUTPUT | {"<", "<>", "<<<"}
_COUNTS = re.compile(r"%[-+ #0'*.\dhlLjzt]*n")  # printf's %n assigns to the variable named by its argument
_PREFIXES: Mapping[str, Collection[str]] = {"exec": ("-c", "-l"), "command": ("-p",), "builtin": ()}
_HEREDOC_EXPANSION = re.compile(rf"`|\$[(\[]|\$\{{(?!{NAME}\}})")
_CASE_ENDS = frozenset({";;", ";&", ";;&", "esac"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirection:
    """An operator and its target."""

    operator: str
    target: Word


class Script:
    """A parsed script: ``reader.approved`` are the places that may contain a value."""

    def __init__(
        self, script: str, placeholders: Mapping[int, int], variables: Collection[str], functions: Collection[str]
    ) -> None:
        self.evaluation = Evaluation(self._nested)
        self.reader = Reader(script, placeholders, variables, self.evaluation)
        self.reader.commands = lambda until: self._list({until})
        self.comments: list[tuple[int, int]] = []
        self.assigned: set[str] = set()  # variables that are assigned a value
        self.value_functions: set[str] = set()  # functions that contain a value
        self.defined: set[str] = set()  # functions
        self.receivers: set[str] = set()  # commands that get a value
        self._variables = variables
        self._functions = functions
        self._last = ""
        self._name = ""  # of the last command that passes on its arguments
        self._list({""})

    def _nested(self, text: str) -> None:
        """Read code inside a word; no value is approved in it."""
        inner = Script(text, {}, self._variables, self._functions)
        self.evaluation.include(inner.evaluation)
        self.defined |= inner.defined

    # Lists and pipelines

    def _list(self, until: Collection[str]) -> bool:
        """Read commands up to one of the tokens, which becomes ``_last``; returns whether they contain a value."""
        has_value = False
        while True:
            self._separators()
            token = self._token()
            if token in until and (token or not self.reader.char()):
                self._last = token
                self.reader.at += len(token)
                if self.reader.heredocs and token == ")":
                    raise NotUnderstood("a here-document that begins after the closing parenthesis")
                return has_value
            if not token and not self.reader.char():
                raise NotUnderstood(f"{' or '.join(sorted(until))} is missing")
            has_value |= self._pipeline()

    def _token(self) -> str:
        found = _TOKEN.match(self.reader.script, self.reader.at)
        return found[0] if found else ""

    def _separators(self) -> None:
        reader = self.reader
        while True:
            reader.blanks()
            if reader.sees("\n"):
                self._newline()
            elif reader.sees("#"):
                end = reader.script.find("\n", reader.at)
                end = len(reader.script) if end < 0 else end
                self.comments.append((reader.at, end))
                reader.at = end
            elif reader.sees("&&", "||"):
                reader.at += 2
            elif (reader.sees(";") and not reader.sees(";;", ";&")) or (reader.sees("&") and not reader.sees("&>")):
                reader.at += 1
            else:
                return

    def _pipeline(self) -> bool:
        has_value = fed = False
        while True:
            self.reader.blanks()
            if self._token() in ("!", "time"):
                self._keyword(self._token())
                self.reader.blanks()
                self._keyword("-p")
                continue
            command_has_value, passes_on = self._command()
            if fed and not passes_on:
                raise Evaluated("a pipe passes the value to shell commands: only programs may read it")
            if fed:
                self.receivers.add(self._name)
            has_value |= command_has_value
            self.reader.blanks()
            if not self.reader.sees("|") or self.reader.sees("||"):
                return has_value
            fed = has_value
            self.reader.at += 2 if self.reader.sees("|&") else 1
            self.reader.blanks()
            while self.reader.sees("\n", "#"):
                self._separators()

    # Compound commands

    def _command(self) -> tuple[bool, bool]:
        """Read a command; returns (contains a value, only passes its arguments on: a program, not shell commands)."""
        reader, token = self.reader, self._token()
        if found := _FUNCTION.match(reader.script, reader.at):
            reader.at = found.end()
            return self._function(found[1]), False
        match token:
            case "(" if reader.sees("(("):
                self._arithmetic()
                has_value = False
            case "(":
                reader.at += 1
                has_value = self._list({")"})
            case "{":
                reader.at += 1
                has_value = self._list({"}"})
            case "if":
                reader.at += 2
                has_value = self._if()
            case "while" | "until":
                reader.at += 5
                has_value = self._list({"do"}) | self._list({"done"})
            case "for":
                reader.at += 3
                has_value = self._for()
            case "case":
                reader.at += 4
                has_value = self._case()
            case "[[":
                self._condition()
                has_value = False
            case "function":
                reader.at += 8
                reader.blanks()
                return self._function(self._function_name()), False
            case _ if token in KEYWORDS:
                raise NotUnderstood(f"{token} is not supported in a template with a placeholder")
            case _:
                return self._simple()
        return self._redirections() or has_value, False

    def _redirections(self) -> bool:
        """Read the redirections of a compound command; returns whether they contain a value.

        The command may run its input as code.
        """
        has_value = False
        self.reader.blanks()
        while (found := self._redirection()) is not None:
            for item in found:
                self._files([item], _OUTPUT)
                has_value |= item.target.has_value
            self.reader.blanks()
        return has_value

    def _function(self, name: str) -> bool:
        self._separators()
        self.defined.add(name)
        has_value, _ = self._command()
        if has_value:
            self.value_functions.add(name)
        return False  # a definition passes on nothing; calls of the function are found by its name

    def _function_name(self) -> str:
        name = self._token()
        self.reader.at += len(name)
        self.reader.blanks()
        if self.reader.sees("("):
            self.reader.at += 1
            self._expect(")")
        return name

    def _if(self) -> bool:
        has_value = self._list({"then"}) | self._list({"elif", "else", "fi"})
        while self._last != "fi":
            if self._last == "elif":
                has_value |= self._list({"then"})
            has_value |= self._list({"elif", "else", "fi"})
        return has_value

    def _for(self) -> bool:
        self.reader.blanks()
        if self.reader.sees("(("):
            self._arithmetic()
        else:
            variable = self.reader.word()
            self._approve([variable])
            self.reader.blanks()
            words = []
            if self._keyword("in"):
                words = self._words()
                if any(word.has_value for word in words):
                    raise Evaluated("a loop over the value: it is one word, so use it without a loop")
                self._approve(words)
            self.evaluation.loop(variable, words)
        self._separators()
        if self._keyword("{"):
            return self._list({"}"})
        self._expect("do")
        return self._list({"done"})

    def _case(self) -> bool:
        self.reader.blanks()
        subject = self.reader.word()
        self._approve([subject])
        self._separators()
        self._expect("in")
        has_value = subject.has_value
        while True:
            self._separators()
            if self._keyword("esac"):
                return has_value
            self._keyword("(")
            with self.reader.refusing("the patterns of `case` are constant"):
                self._patterns()
            has_value |= self._list(_CASE_ENDS)
            if self._last == "esac":
                return has_value

    def _patterns(self) -> None:
        while True:
            self.reader.blanks()
            if self._keyword(")"):
                return
            if not self.reader.sees("|") and not self._read_word():
                raise NotUnderstood("a pattern of `case`")
            self.reader.blanks()
            if self.reader.sees("|"):
                self.reader.at += 1

    def _read_word(self) -> Word | None:
        if self.reader.sees("#"):
            return None
        word = self.reader.word()
        return word if word.end > word.start else None

    def _words(self) -> list[Word]:
        words = []
        self.reader.blanks()
        while word := self._read_word():
            words.append(word)
            self.reader.blanks()
        return words

    def _arithmetic(self) -> None:
        with self.reader.refusing("bash evaluates arithmetic"):
            self.reader.at += 1
            self.reader.arithmetic(")")

    def _condition(self) -> None:
        why, words = "bash evaluates what is inside [[ … ]]: use [ … ]", list[Word]()
        with self.reader.refusing(why):
            while (word := self.reader.word()).raw != "]]":
                if word.has_value:
                    raise Evaluated(why)
                words.append(word)
                if self.reader.sees("\n"):
                    self.reader.line_ends()
                if not self.reader.char():
                    raise NotUnderstood("]] is missing")
                if word.end == word.start:
                    self.reader.at += 1
        self.evaluation.condition([word for word in words if word.raw])

    def _expect(self, token: str) -> None:
        if not self._keyword(token):
            raise NotUnderstood(f"{token} is missing before {self._token() or 'the end'!r}")

    def _keyword(self, token: str) -> bool:
        if self._token() != token:
            return False
        self.reader.at += len(token)
        return True

    # Redirections

    def _redirection(self) -> list[Redirection] | None:
        """The redirection that begins here, or None; an empty list for a here-document."""
        found = _REDIRECTION.match(self.reader.script, self.reader.at)
        if found is None:
            return None
        self.reader.at = found.end()
        if found[1] in ("<<", "<<-"):
            delimiter = _HEREDOC.match(self.reader.script, self.reader.at)
            if delimiter is None or self.reader.script[delimiter.end() : delimiter.end() + 1] in tuple("$`\\\"'"):
                raise NotUnderstood("the delimiter of a here-document")
            literal = any(mark in delimiter[1] for mark in "'\"\\")
            self.reader.heredocs.append((re.sub(r"['\"\\]", "", delimiter[1]), literal, found[1] == "<<-"))
            self.reader.at = delimiter.end()
            return []
        self.reader.blanks()
        target = self._read_word()
        if target is None:
            raise NotUnderstood(f"the target of {found[1]} is missing")
        return [Redirection(operator=found[1], target=target)]

    def _newline(self) -> None:
        reader = self.reader
        reader.at += 1
        while reader.heredocs:
            delimiter, literal, stripped = reader.heredocs.pop(0)
            with reader.refusing("inside a here-document the value would become part of other text: use <<< or a pipe"):
                while (line := self._line()) != delimiter and not (stripped and line.lstrip("\t") == delimiter):
                    if not literal and _HEREDOC_EXPANSION.search(line):
                        raise NotUnderstood("an expansion in a here-document: quote its delimiter, or use a variable")
                    if not literal and line.endswith("\\"):
                        raise NotUnderstood("a continued line in a here-document")

    def _line(self) -> str:
        if self.reader.at >= len(self.reader.script):
            raise NotUnderstood("the end of a here-document is missing")
        end = self.reader.script.find("\n", self.reader.at)
        end = len(self.reader.script) if end < 0 else end
        line = self.reader.script[self.reader.at : end]
        self.reader.at = end + 1
        return line

    def _files(self, redirections: list[Redirection], operators: Collection[str]) -> None:
        for item in redirections:
            if item.target.has_value and item.operator not in operators:
                raise Evaluated(f"{item.operator} with a value is not supported here")
        self._approve([item.target for item in redirections])

    # Simple commands

    def _simple(self) -> tuple[bool, bool]:
        start = self.reader.at
        assignments: list[Word] = []
        words: list[Word] = []
        redirections: list[Redirection] = []
        while True:
            self.reader.blanks()
            if (found := self._redirection()) is not None:
                redirections += found
            elif (word := self._read_word()) is None:
                break
            elif not words and assigned_name(word.raw):
                assignments.append(word)
            else:
                words.append(word)
                if word.raw.startswith("{") and "[" in word.raw and self.reader.sees("<", ">"):
                    raise Evaluated("a subscript in {…}: use a plain variable")
        if self.reader.sees("("):
            raise NotUnderstood("a ( inside a command: quote it")
        if self.reader.at == start:
            raise NotUnderstood(f"a command is missing before {self._token() or self.reader.char() or 'the end'!r}")
        targets = [item.target for item in redirections]
        has_value = any(word.has_value for word in [*assignments, *words, *targets])
        if not words:
            self._assign(assignments)
            self._files(redirections, _OUTPUT)
            return has_value, False
        return self._simple_command(assignments, words, redirections, has_value=has_value)

    def _simple_command(
        self, assignments: list[Word], words: list[Word], redirections: list[Redirection], *, has_value: bool
    ) -> tuple[bool, bool]:
        rest = _without_prefixes(words)
        name = rest[0].constant if rest else None
        if rest:
            why = _objection(rest)
        elif words[0].constant == "exec":  # alone it only redirects
            why = None
        else:
            why = "it has no command"
        program = why is None and rest != [] and name not in BUILTINS
        if why is None and any(word.has_value for word in assignments):
            why = None if program else "a variable assigned in front of a builtin contains the value"
        if why is not None and has_value:
            raise Evaluated(why)
        self.evaluation.assign(assignments)
        if rest:
            self._check(rest)
        if why is not None:
            return False, False
        if name == "export":
            self._assign(rest[1:])
        self._name = name or ""
        if has_value:
            self.receivers.add(self._name)
        self._check_variables(assignments)
        self._files(redirections, _TARGETS if rest else _OUTPUT)
        self._approve([*assignments, *words])
        return has_value or name in self._functions, bool(rest)

    def _check(self, words: list[Word]) -> None:
        """Evaluated if the command evaluates something that is not constant."""
        name, *arguments = words
        if name.constant is None and (why := _objection(words)) is not None:
            raise Evaluated(why)
        if name.constant in BUILTINS and not _is_safe_builtin(name.constant, arguments):
            self.evaluation.builtin(name.constant, arguments)
        if name.constant in DECLARING:
            self.evaluation.assign(arguments)

    def _check_variables(self, assignments: list[Word]) -> None:
        for word in assignments:
            if word.has_value:
                self._variable(word)

    def _assign(self, assignments: list[Word]) -> None:
        """Assignments to shell variables: references to them are values as well."""
        for word in assignments:
            if word.has_value:
                self.assigned.add(self._variable(word))
        self.evaluation.assign(assignments)
        self._approve(assignments)

    def _variable(self, word: Word) -> str:
        found = ASSIGNMENT.match(word.lead)
        if found is None or word.array:
            raise Evaluated("bash evaluates the subscripts of an array: assign to a plain variable")
        if found[1] in VARIABLES:
            raise Evaluated(f"{found[1]} is a variable that bash itself uses")
        return found[1]

    def _approve(self, words: list[Word]) -> None:
        for word in words:
            self.reader.approved += word.text


def _without_prefixes(words: list[Word]) -> list[Word]:
    """The command after ``exec``, ``command`` and ``builtin``."""
    rest = list(words)
    while rest and rest[0].constant in _PREFIXES:
        options = _PREFIXES[rest.pop(0).constant or ""]
        while rest and rest[0].constant in options:
            rest.pop(0)
    return rest


def _objection(words: list[Word]) -> str | None:
    """Why this command must not have a value in its arguments; None if it may."""
    name, arguments = words[0], words[1:]
    if name.has_value:
        return "the value would be a command name"
    if name.constant is None:
        path = "/" in name.tail and not name.several
        return None if path else "the command name is not constant, so it may be a builtin: write the name or a path"
    if name.constant.startswith("-"):
        return f"the option {name.constant} is not supported here"
    if name.constant not in BUILTINS | KEYWORDS:
        return None
    if name.constant not in DECLARING - {"export"} and _is_safe_builtin(name.constant, arguments):
        return None
    return f"{name.constant} is a bash builtin that may evaluate the value as code or as a variable name"


def _is_safe_builtin(builtin: str, arguments: list[Word]) -> bool:
    """Whether a builtin evaluates none of these arguments; unknown builtins are not harmless."""
    match builtin:
        case ":" | "true" | "false" | "echo" | "cd":
            return True
        case "printf":
            return _printf_is_safe(arguments)
        case "[" | "test":
            return _test_is_safe(arguments)
        case _ if builtin in DECLARING:
            return all(_is_assignment(word) for word in arguments)
    return False


def _printf_is_safe(words: list[Word]) -> bool:
    """Whether printf's format is constant or the only value, and not an option: -v evaluates the next word."""
    ended = bool(words) and words[0].constant == "--"
    rest = words[1:] if ended else words
    if not rest or rest[0].several or rest[0].loose or (not ended and rest[0].lead[:1] in ("", "-")):
        return False
    if rest[0].constant is None:
        return (rest[0].has_value or len(rest) == 1) and not any(word.has_value for word in rest[1:])
    return _COUNTS.search(rest[0].constant) is None


def _test_is_safe(words: list[Word]) -> bool:
    """Whether only one word contains a value and none can be -v or -R, which evaluate the next word."""
    with_value = [word for word in words if word.has_value]
    others = [word.constant for word in words if not word.has_value]
    if len(with_value) > 1 or any(word.loose or word.several for word in with_value):
        return False
    return all(text is not None and text not in ("-v", "-R") for text in others)


def _is_assignment(word: Word) -> bool:
    if word.several or word.loose or word.array:
        return False
    if word.constant is not None and re.fullmatch(NAME, word.constant):
        return True
    return ASSIGNMENT.match(word.lead) is not None
